"""How a command on Ray ends: by a signal, or with Ray's own processes. The GPUs of its actors.

Run as a program, this file is such a command: `python -m tests.pipelines.test_ray_ends local|ADDRESS FOLDER SECONDS`.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.preparing.engines import ray_cluster
from pipelines.preparing.engines.ray_core import RayEngine
from workbench.cli.app import reported

pytestmark = pytest.mark.scale
LIMIT = 60
"""Seconds for a process to begin, and to end."""
ROOT = Path(__file__).resolve().parents[2]
QUICK = {"RAY_gcs_rpc_server_reconnect_timeout_s": "3"}
"""Ray waits for a minute for its gcs_server."""
UNITS = 40


@contextmanager
def started(head: dict[str, Any]) -> Iterator[Any]:
    """A cluster with this head."""
    pytest.importorskip("ray")
    os.environ.update(ray_cluster.ENVIRONMENT)
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    made = Cluster(
        initialize_head=True, head_node_args={"include_dashboard": False, "object_store_memory": 80 << 20, **head}
    )
    try:
        yield made
    finally:
        made.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two cores that declares two GPUs."""
    with started({"num_cpus": 2, "num_gpus": 2}) as made:
        yield made


def unit(task: tuple[Path, float], number: int) -> int:
    """Two quick units, then units of so many seconds."""
    folder, seconds = task
    (folder / f"begun-{number}").touch()
    time.sleep(seconds if number > 1 else 0)
    (folder / f"ended-{number}").touch()
    return number


def main(address: str, folder: str, seconds: str) -> None:
    with reported():
        engine = RayEngine(2, None if address == "local" else address)
        with engine.opened():
            for _ in engine.each(unit, (Path(folder), float(seconds)), range(UNITS)):
                pass


class Command:
    """The command in a session of its own, which has finished two units."""

    def __init__(self, folder: Path, address: str, seconds: float) -> None:
        self.folder = folder
        arguments = [sys.executable, "-m", "tests.pipelines.test_ray_ends", address, str(folder), str(seconds)]
        variables = {**os.environ, **ray_cluster.ENVIRONMENT, "PYTHONPATH": str(ROOT), **QUICK}
        self.process = subprocess.Popen(
            arguments, env=variables, cwd=ROOT, text=True, stderr=subprocess.PIPE, start_new_session=True
        )
        wait(lambda: self._works() or self.process.poll() is not None)
        assert self._works(), self.process.communicate()[1]
        time.sleep(0.5)

    def _works(self) -> bool:
        return self.count("ended") >= 2 and self.count("begun") >= 4

    def count(self, what: str) -> int:
        return len(list(self.folder.glob(f"{what}-*")))

    def kill(self, name: str) -> None:
        """Kill the process of Ray with this in its command line."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        victim = next(child for child in children if name in " ".join(child.cmdline()))
        victim.kill()

    def ended(self) -> tuple[int, str]:
        """The exit code, and the last line of its output."""
        try:
            said = self.process.communicate(timeout=LIMIT)[1]
        finally:
            self.process.kill()
        return self.process.returncode, " ".join(said[said.rfind("error:") :].split())


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def actors() -> list[int]:
    """The processes of actors on this machine."""
    found = psutil.process_iter(["cmdline"])
    return [each.pid for each in found if "ray::UnitActor" in " ".join(each.info["cmdline"] or ())]


def device(context: None, number: int) -> tuple[str, int]:
    """The GPUs that the actor's process sees, and its number."""
    time.sleep(0.3)
    return os.environ.get("CUDA_VISIBLE_DEVICES", "none"), os.getpid()


def test_each_actor_has_a_gpu_of_its_own(cluster: Any, monkeypatch: Any) -> None:
    import ray

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    engine = RayEngine(0, cluster.address)
    with engine.opened():
        found = {name: set(engine.each(device, None, range(8), name)) for name in ("auto", "cpu", "cuda")}
        assert ray.available_resources().get("GPU", 0) == 0
    for name in ("auto", "cuda"):
        assert sorted(gpu for gpu, _ in found[name]) == ["0", "1"]
        assert len({process for _, process in found[name]}) == 2
    assert not {process for _, process in found["cpu"]} & {process for _, process in found["auto"]}


@pytest.mark.parametrize("name", ["raylet/raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent", "gcs/gcs_server"])
def test_a_command_ends_with_a_line_where_a_process_of_ray_ends(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    command = Command(tmp_path, "local", 1)
    command.kill(name)
    code, said = command.ended()
    assert code == 1
    assert "run the same command again to continue" in said


def test_a_command_ends_with_a_line_where_its_cluster_is_stopped(tmp_path: Path) -> None:
    with started({"num_cpus": 2}) as cluster:
        command = Command(tmp_path, cluster.address, 1)
    code, said = command.ended()
    assert code == 1
    assert "run the same command again to continue" in said


@pytest.mark.parametrize(
    ("signals", "code", "finished"),
    [
        ([signal.SIGINT], 130, 4),
        ([signal.SIGINT, signal.SIGINT], 130, 2),
        ([signal.SIGTERM], 143, 4),
        ([signal.SIGTERM, signal.SIGTERM], -signal.SIGTERM, 2),
        ([signal.SIGKILL], -signal.SIGKILL, 2),
    ],
    ids=["one Ctrl-C", "two", "SIGTERM", "two SIGTERM", "SIGKILL"],
)
def test_nothing_of_an_ended_command_stays_on_a_cluster_of_others(
    signals: list[signal.Signals], code: int, finished: int, cluster: Any, tmp_path: Path
) -> None:
    command = Command(tmp_path, cluster.address, 4 if len(signals) == 1 and code > 0 else 40)
    for number in signals:
        os.killpg(command.process.pid, number)
        time.sleep(1.5)
    found, said = command.ended()
    assert found == code, said
    wait(lambda: not actors())
    assert (command.count("begun"), command.count("ended")) == (4, finished)
    with RayEngine(2, cluster.address).opened():
        import ray

        wait(lambda: ray.available_resources().get("CPU") == 2.0)


if __name__ == "__main__":
    main(*sys.argv[1:])


def test_a_cluster_of_our_own_listens_on_the_loopback_address_with_a_token() -> None:
    """Otherwise whoever reaches the node could run code as the user while the command works."""
    code = """if True:
        import psutil
        from pipelines.preparing.engines.ray_core import chosen_engine
        with chosen_engine("ray", 1, None).opened():
            import ray
            ray.get(ray.remote(num_cpus=1)(lambda: None).remote())
            started = psutil.Process().children(recursive=True)
            of_all = [process.net_connections("tcp") for process in [psutil.Process(), *started]]
            print(*{place.laddr.ip for places in of_all for place in places if place.status == "LISTEN"})
            variables = next(process.environ() for process in started if process.name() == "gcs_server")
            print(variables["RAY_AUTH_MODE"], len(variables["RAY_AUTH_TOKEN"]))
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=LIMIT)
    places, token = done.stdout.splitlines()
    assert {place.removeprefix("::ffff:") for place in places.split()} == {"127.0.0.1"}
    assert token == "token 64"

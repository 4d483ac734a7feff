"""After any failure a run ends soon, with its loader's processes, a message (a traceback for a bug) and an exit
code."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import torch

from workbench.core.errors import BUG, MachineError
from workbench.core.processes.distributed import World
from workbench.core.processes.membership import LostRanksError
from workbench.core.processes.signals import StopRequest
from workbench.pretraining import workers
from workbench.recipe.reading import load_recipe
from workbench.runs.checkpoint import Content
from workbench.runs.saving import Saving
from workbench.runs.status import noted_end
from workbench.training.callbacks import Callback
from workbench.training.failures import named_failures
from workbench.training.pretrain import Stopped, pretrain

Launch = Callable[..., Any]
SOON = 600  # seconds for a busy machine; what these tests are about was for ever


def in_loader(how: str, number_of_workers: int) -> Callable[[dict[str, Any]], None]:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["sequence"]["transforms"] = [{"transform": "toy_components:FaultyStep", "how": how}]
        tree["train"].update(num_workers=number_of_workers, save_every=1)

    return change


def in_layer(how: str, number_of_workers: int = 2, **options: Any) -> Callable[[dict[str, Any]], None]:
    def change(tree: dict[str, Any]) -> None:
        tree["model"]["layers"].append({"layer": "toy_components:FaultyLayer", "stream": "text", "how": how, **options})
        tree["train"].update(num_workers=number_of_workers, save_every=1)

    return change


def test_a_bug_leaves_no_process_and_keeps_its_traceback(make_recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        pretrain(load_recipe(str(make_recipe(in_layer("bug"))), trust=True), tmp_path / "run")
    assert not multiprocessing.active_children()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("how", ["memory", "device memory"])
def test_no_memory_says_what_to_lower(make_recipe: Any, tmp_path: Path, how: str) -> None:
    with pytest.raises(MachineError, match=r"out of memory on cpu.*micro_batch_size"):
        pretrain(load_recipe(str(make_recipe(in_layer(how))), trust=True), tmp_path / "run")
    assert not multiprocessing.active_children()


def test_a_full_gpu_says_what_was_asked_of_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"mem_get_info": (2**30, 80 * 2**30), "memory_allocated": 70 * 2**30, "memory_reserved": 72 * 2**30}
    for name, value in numbers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    reported = (
        r"rank 0 \(.*\): out of memory on cuda:0 "
        r"\(Tried to allocate 2\.50 GiB; of 80\.0 GiB 1\.0 are free, 70\.0 are tensors "
        r"of this process, and 2\.0 are reserved by it for new ones\)\. Lower train\.micro_batch_size .*"
        r"train\.activation_checkpointing=true .*train\.compile=true"
    )
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has ...")
    with pytest.raises(MachineError, match=reported), named_failures(World(device=torch.device("cuda", 0))):
        raise error


def test_a_full_host_is_no_memory_too(make_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        return torch.empty(2**60)

    monkeypatch.setattr("workbench.training.step.Updater.run", full)
    with pytest.raises(MachineError, match="out of memory on cpu"):
        pretrain(load_recipe(str(make_recipe())), tmp_path / "run")


@pytest.mark.parametrize("number_of_workers", [1, 2, 3])
def test_a_killed_worker_is_named(make_recipe: Any, tmp_path: Path, number_of_workers: int) -> None:
    with pytest.raises(MachineError, match=r"a loader worker \(process \d+\) was killed by SIGKILL; .*num_workers"):
        pretrain(load_recipe(str(make_recipe(in_loader("kill", number_of_workers))), trust=True), tmp_path / "run")
    assert not multiprocessing.active_children()


def test_a_worker_that_ends_by_itself_says_how_to_see_more(make_recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"ended with exit code 3.*train\.num_workers=0"):
        pretrain(load_recipe(str(make_recipe(in_loader("exit", 1))), trust=True), tmp_path / "run")
    assert not multiprocessing.active_children()


def with_shards_cut_off(corpus: Path, number_of_workers: int) -> Callable[[dict[str, Any]], None]:
    def change(tree: dict[str, Any]) -> None:
        in_loader("cut off", number_of_workers)(tree)
        tree["tasks"]["text"]["corpora"] = [str(corpus)]
        tree["tasks"]["text"]["sequence"]["transforms"][0]["corpus"] = str(corpus)

    return change


def test_a_shard_that_is_cut_off_under_a_worker_is_named(
    make_recipe: Any, launch: Launch, world_folder: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(world_folder / "train", corpus)
    code, output = launch(make_recipe(with_shards_cut_off(corpus, 2)), tmp_path / "run").wait(SOON)
    assert code == 1, output
    reported = output[output.index("error:") :]
    assert "was killed by SIGBUS; a file of the data was changed or cut off while it was read" in reported
    assert "workbench verify" in reported
    assert f"shard {corpus}/part-000000.tar: it has 100 bytes, but " in reported
    assert "shared memory" not in output  # torch's own guess
    assert "Traceback" not in output


def test_without_workers_a_bus_error_says_where(
    make_recipe: Any, launch: Launch, world_folder: Path, tmp_path: Path
) -> None:
    """The process itself dies: there is no message of ours, but the place in the code is printed."""
    corpus = tmp_path / "corpus"
    shutil.copytree(world_folder / "train", corpus)
    code, output = launch(make_recipe(with_shards_cut_off(corpus, 0)), tmp_path / "run").wait(SOON)
    assert code == -signal.SIGBUS, output
    assert "Bus error" in output
    assert "corpora/corpus.py" in output


def number_or_death(number: int) -> torch.Tensor:
    """Comes so fast that the news of a worker's death meets the main process anywhere."""
    if number == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.full((9,), number)


def taken(owned: workers.Workers, numbers: range) -> list[Any]:
    tickets = [owned.ask(number) for number in numbers]
    return [owned.take(ticket)[0] for ticket in tickets]


def test_a_death_is_named_at_whatever_moment_its_news_come() -> None:
    for _ in range(6):
        with (
            pytest.raises(MachineError, match="was killed by SIGKILL"),
            workers.Workers(number_or_death, 2) as owned,
        ):
            taken(owned, range(99))
        assert not multiprocessing.active_children()


def kill_all_and_take(owned: workers.Workers) -> None:
    for process in multiprocessing.active_children():
        process.kill()
        process.join()
    taken(owned, range(9))


def test_a_worker_that_dies_at_once_is_named() -> None:
    with pytest.raises(MachineError, match="was killed by SIGKILL"), workers.Workers(number_or_death, 2) as owned:
        kill_all_and_take(owned)
    assert not multiprocessing.active_children()


def test_nothing_is_raised_where_the_news_of_a_death_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handler of SIGCHLD raises, and one that does is ignored."""
    heard = []
    before = signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
    try:
        with workers.Workers(number_or_death, 1) as owned:
            assert [int(value[0]) for value in taken(owned, range(3))] == [0, 1, 2]
            assert signal.getsignal(signal.SIGCHLD) not in (signal.SIG_DFL, signal.SIG_IGN)
        assert heard
    finally:
        signal.signal(signal.SIGCHLD, before)


def own_a_late_worker(news: Connection, monkey: pytest.MonkeyPatch) -> None:
    owner, serve = os.getpid(), workers._serve

    def late(*arguments: Any) -> None:
        """A worker that comes to itself when its owner has been killed already."""
        news.send(os.getpid())
        while os.getppid() == owner:
            time.sleep(0.01)
        serve(*arguments)

    monkey.setattr(workers, "_serve", late)
    with workers.Workers(number_or_death, 1) as owned:
        taken(owned, range(9))


def test_a_worker_ends_although_its_owner_was_killed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    reported, news = multiprocessing.Pipe()
    owner = multiprocessing.get_context("fork").Process(target=own_a_late_worker, args=(news, monkeypatch))
    owner.start()
    worker = psutil.Process(reported.recv())
    owner.kill()
    owner.join()
    _, alive = psutil.wait_procs([worker], timeout=SOON)
    for left in alive:
        left.kill()
    assert not alive


class _At(Callback):
    """Does something after a step."""

    def __init__(self, step: int, do: Callable[[], None]) -> None:
        self.step, self.do = step, do

    def on_step(self, step: int, metrics: Any) -> None:
        if step == self.step:
            self.do()


def _raising(error: BaseException) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


def test_status_json_says_how_a_run_ended(make_recipe: Any, tmp_path: Path) -> None:
    """A scheduler's hook reads the exit code, rank, host, step and reason."""
    few = make_recipe(lambda tree: tree["train"].update(max_steps=6, save_every=1))
    run, recipe = tmp_path / "run", load_recipe(str(few))

    def status(step: int, do: Callable[[], None]) -> tuple[int, int, str]:
        with suppress(RuntimeError, MachineError, OSError, Stopped):
            pretrain(recipe, run, callbacks=[_At(step, do)])
        found = json.loads((run / "status.json").read_text())
        assert (found["rank"], found["host"]) == (0, socket.gethostname())
        return found["code"], found["step"], found["reason"]

    assert status(2, _raising(RuntimeError("boom"))) == (BUG, 2, "RuntimeError: boom")
    code, step, reason = status(3, _raising(OSError(errno.ENOSPC, "No space left on device", str(run / "x"))))
    assert (code, step) == (1, 3)
    assert "the disk is full" in reason
    assert status(4, lambda: os.kill(os.getpid(), signal.SIGUSR1)) == (138, 5, "stopped by SIGUSR1; step 5 is saved")
    assert status(0, lambda: None) == (0, recipe.train.max_steps, "finished")


def test_status_json_is_of_the_rank_with_an_error_of_its_own(tmp_path: Path) -> None:
    """A rank that lost others is no cause, and their messages end nobody's status."""
    lost, full = LostRanksError("rank 1 of 3 lost the others"), MachineError("rank 2 (node2): the disk is full")
    for rank, error in ((1, lost), (2, full), (0, lost), (0, RuntimeError("later"))):
        with suppress(MachineError, RuntimeError), noted_end(tmp_path, World(rank, 3)) as end:
            end.step = 7
            raise error
        found = json.loads((tmp_path / "status.json").read_text())
        assert (found["rank"], found["code"], found["step"]) == (1 if rank == 1 else 2, 1, 7)
    assert found["reason"] == "rank 2 (node2): the disk is full"


def test_a_full_disk_names_its_rank_and_its_host(tmp_path: Path) -> None:
    class Full:
        def write(self, draft: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    where, content = f"{World(1, 2).name}: ", cast(Content, Full())
    assert where == f"rank 1 ({socket.gethostname()}): "
    for background in (False, True):
        saving = Saving(tmp_path / "step-4", tmp_path, content, consolidated=False, background=background, where=where)
        assert str(saving.wait().error()).startswith(f"{where}{tmp_path / 'step-4'}: the disk is full")


@pytest.mark.parametrize("number_of_workers", [0, 1])
def test_what_the_system_refuses_in_the_loader(make_recipe: Any, tmp_path: Path, number_of_workers: int) -> None:
    with pytest.raises((MachineError, OSError), match=r"shard\.tar") as refused:
        pretrain(load_recipe(str(make_recipe(in_loader("disk", number_of_workers))), trust=True), tmp_path / "run")
    assert isinstance(refused.value, MachineError) or not number_of_workers
    assert not multiprocessing.active_children()


def test_a_worker_that_hangs_is_given_up(make_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 5.0)
    with pytest.raises(MachineError, match="no micro-batch came from the loader's workers"):
        pretrain(load_recipe(str(make_recipe(in_loader("hang", 1))), trust=True), tmp_path / "run")
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("change", [in_layer("bug"), in_loader("kill", 2)])
def test_the_process_ends(make_recipe: Any, launch: Launch, tmp_path: Path, change: Any) -> None:
    """Not only the call: the interpreter waits for processes that it started."""
    code, output = launch(make_recipe(change), tmp_path / "run").wait(SOON)
    assert code == (BUG if "boom" in output else 1), output
    assert ("boom" in output) == ("Traceback" in output)


@pytest.mark.scale
@pytest.mark.parametrize(("how", "rank"), [("bug", None), ("bug", 1), ("bug", 0), ("kill", 1), ("memory", 0)])
def test_ranks_end_together(make_recipe: Any, launch: Launch, tmp_path: Path, how: str, rank: int | None) -> None:
    recipe = make_recipe(in_layer(how, number_of_workers=1, rank=rank))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [launch(recipe, tmp_path / "run", rank=number, size=2, port=port) for number in range(2)]
    ends = [process.wait(SOON) for process in ranks]
    if rank is None:
        codes = {code for code, _ in ends}  # the one that is slower may find the other one gone
        assert BUG in codes
        assert codes <= {BUG, 1}
        assert any("RuntimeError: boom" in output for _, output in ends)
        return
    for number, (code, output) in enumerate(ends):
        if number == rank:
            assert code == {"kill": -signal.SIGKILL, "bug": BUG}.get(how, 1), output
            assert how != "bug" or "RuntimeError: boom" in output
        else:
            assert code == 1, output
            lost = {0: "rank 0 on 127.0.0.1 does not answer", 1: f"rank 1 ({socket.gethostname()}, process "}[rank]
            assert f"error: rank {number} of 2 lost the others: {lost}" in output
            assert rank == 0 or ("sends no heartbeat" if how == "kill" else "ended with RuntimeError") in output
            assert "Traceback" not in output


def test_a_signal_promises_what_is_known(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Alone a checkpoint; on several ranks one if all are there; none once others are lost."""

    def message() -> str:
        caplog.clear()
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert stop.signal == signal.SIGTERM
        return caplog.text

    assert "SIGTERM: finishing this step and saving a checkpoint; send it again" in message()
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert "saving a checkpoint, if all ranks are still there; send it again" in message()
    with StopRequest():
        caplog.clear()
        found = r"Look for the reason there; this rank only noticed: .*Read error"
        with pytest.raises(LostRanksError, match=found), named_failures(World(1, 2)):
            raise RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error")
        signal.raise_signal(signal.SIGTERM)
        assert "SIGTERM: the run ends without a new checkpoint, since other ranks are lost" in caplog.text
    assert "saving a checkpoint, if all ranks" in message()  # of the next run of this process

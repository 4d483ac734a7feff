"""The engine of Ray: the same bytes as on local processes, also where workers are lost."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.app import app as preparing
from pipelines.preparing.chunks import Chunk, Conversion, Limits, Outcome, ShardTask, work
from pipelines.preparing.engines import ray_cluster, ray_core
from pipelines.preparing.engines.engine import Engine
from pipelines.preparing.engines.local import LocalEngine
from pipelines.preparing.engines.ray_core import RayEngine
from pipelines.preparing.splits import Splits
from pipelines.stages.text_cleaning import MinimumLength
from tests.pipelines.jobs import prepare
from tests.pipelines.test_commands import prepare as command
from workbench.api import prepare as in_python
from workbench.core.errors import MachineError, WorkbenchError

ROWS = [{"id": f"d{i}", "text": f"document {i % 20} " + "word " * (i % 5)} for i in range(40)]


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    """One cluster of two cores, and an engine whose actors stay from test to test."""
    ray = pytest.importorskip("ray")
    os.environ.update(ray_cluster.ENVIRONMENT)
    ray_cluster.silence(ray)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, **quiet)
    with (made := RayEngine(2)).opened():
        yield made
    ray.shutdown()


@pytest.fixture
def free_cluster(engine: RayEngine) -> None:
    """The cluster of `engine` with free cores for a command, which has actors of its own."""
    ray_core._end(sys.modules["ray"], engine._free)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of the corpus and its held-out split."""
    places = [folder, folder.with_name(f"{folder.name}-dev")]
    return {str(p.relative_to(folder.parent.parent)): p.read_bytes() for place in places for p in place.rglob("*.*")}


@pytest.mark.scale
def test_bytes_drops_and_manifest_depend_on_neither_workers_nor_engine(tmp_path, json_lines, text_job, engine):
    path = json_lines("docs.jsonl", ROWS)

    def content_of(number: int, engine: Engine) -> dict[str, bytes]:
        job = text_job(path, f"{number}/corpus", stages=(MinimumLength(14),), dedupe=True, splits={"dev": 0.2})
        result = prepare(job, [path], Limits(shard_size=3), engine=engine)
        assert set(result.dropped) == {"MinimumLength: too short", "dedupe: duplicate"}
        return {name.partition("/")[2]: data for name, data in content(job.output).items()}

    made = [content_of(1, LocalEngine(1)), content_of(2, LocalEngine(2))]
    for engine.workers in (1, 5, 2):
        made.append(content_of(10 + engine.workers, engine))
    assert len(made[0]) > 15
    assert all(other == made[0] for other in made[1:])


def double(context: int, number: int) -> int:
    return context * number


@pytest.mark.scale
@pytest.mark.parametrize("items", [0, 1, 9])
def test_values_come_in_order(items: int, engine: RayEngine) -> None:
    assert list(engine.each(double, 2, range(items))) == [2 * number for number in range(items)]


def killed_once(folder: Path, number: int) -> int:
    if number == 2 and not (folder / str(number)).exists():
        (folder / str(number)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def killed_always(context: None, number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.scale
def test_a_lost_worker_is_replaced_and_its_item_runs_again(tmp_path: Path, caplog: Any, engine: RayEngine) -> None:
    assert list(engine.each(killed_once, tmp_path, range(8))) == list(range(8))
    assert sum("a worker was lost; another one does its shard again" in line for line in caplog.messages) == 1


@pytest.mark.scale
def test_an_item_that_loses_every_worker_ends_the_run(engine: RayEngine, monkeypatch: Any) -> None:
    monkeypatch.setattr(ray_core, "LOSSES", 0)
    with pytest.raises(MachineError, match=r"a shard lost its worker 1 times: .*fewer --workers"):
        list(engine.each(killed_always, None, range(4)))


def noted(context: None, number: int) -> int:
    logging.getLogger("library").warning("a line")
    if number == 3:
        error = WorkbenchError(f"item {number}")
        error.add_note("a note")
        raise error
    return number


@pytest.mark.scale
def test_the_first_items_error_has_its_notes_and_log_lines_come_once(caplog: Any, engine: RayEngine) -> None:
    with pytest.raises(WorkbenchError, match="item 3") as raised:
        list(engine.each(noted, None, range(9)))
    assert raised.value.__notes__ == ["a note"]
    assert "in noted" in str(raised.value.__cause__)
    assert caplog.messages.count("a line") == 1


def slow(folder: Path, number: int) -> int:
    (folder / f"begun-{number}").touch()
    time.sleep(0.3)
    (folder / f"ended-{number}").touch()
    return number


@pytest.mark.scale
def test_items_in_progress_are_finished_and_no_more_are_started(tmp_path: Path, engine: RayEngine) -> None:
    values = engine.each(slow, tmp_path, range(100))
    assert next(values) == 0
    values.close()  # type: ignore[attr-defined]  # a generator
    begun = {path.name.partition("-")[2] for path in tmp_path.glob("begun-*")}
    assert begun == {path.name.partition("-")[2] for path in tmp_path.glob("ended-*")}
    assert len(begun) < 9
    time.sleep(0.5)
    assert len(list(tmp_path.glob("begun-*"))) == len(begun)


@pytest.mark.scale
def test_a_gpu_that_no_node_has_is_refused(engine: RayEngine) -> None:
    with pytest.raises(WorkbenchError, match="--device cuda: no node of the Ray cluster has a GPU"):
        list(engine.each(double, 2, range(2), "cuda"))


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    """Ray itself tries for two minutes."""
    pytest.importorskip("ray")
    with pytest.raises(WorkbenchError, match=r"--address 127.0.0.1:1: no Ray cluster .*refused.*`ray start --head`"):
        ray_cluster.connect(sys.modules["ray"], 1, "127.0.0.1:1")


def test_a_line_is_printed_where_a_process_ends_without_one() -> None:
    code = "import os; from pipelines.preparing.engines.ray_cluster import witnessed\nwith witnessed(): {}"
    for end, said in (("os._exit(1)", "error: Ray has ended this command"), ("pass", "")):
        run = [sys.executable, "-c", code.format(end)]
        found = subprocess.run(run, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
        assert found.stderr.startswith(said)
        assert found.stderr.count("\n") == (1 if said else 0)


@pytest.mark.scale
def test_the_command_and_python_take_the_engine(tmp_path, json_lines, free_cluster):
    path = json_lines("docs.jsonl", ROWS)
    command("text", path, "-o", tmp_path / "command", "--shard-size", 9, "--engine", "ray", "--workers", 2)
    made = in_python("text", inputs=path, output=tmp_path / "python", shard_size=9, engine="ray")
    assert made.identity == in_python("text", inputs=path, output=tmp_path / "own", shard_size=9).identity
    assert len(list((tmp_path / "command").glob("*.tar"))) == 5


@pytest.mark.scale
def test_the_whole_corpus_json_depends_on_neither_engine_nor_workers(tmp_path, json_lines, free_cluster, monkeypatch):
    path = json_lines("docs.jsonl", ROWS)
    found = []
    for number, how in enumerate(("--workers 1", "--engine=local --workers 2", "--engine ray --workers=2")):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        given = ["text", str(path), *how.split(), "--dedupe", "--shard-size", "9", "-o", "out"]
        monkeypatch.setattr(sys, "argv", ["/bin/workbench", "prepare", *given])
        command(*given)
        found.append(Path("out", "corpus.json").read_bytes())
    assert found[0] == found[1] == found[2]
    said = json.loads(found[0])["provenance"]["command"]
    assert said == f"workbench prepare text {path} --dedupe --shard-size 9 -o out"


def test_without_ray_nothing_is_begun(tmp_path, json_lines, monkeypatch):
    path = json_lines("docs.jsonl", ROWS)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(WorkbenchError, match=r"--engine ray needs the package 'ray': pip install .*\[ray\]"):
        command("text", path, "-o", tmp_path / "out", "--engine", "ray")
    with pytest.raises(WorkbenchError, match="--address auto is for --engine ray"):
        command("text", path, "-o", tmp_path / "out", "--address", "auto")
    assert not (tmp_path / "out").exists()


def test_a_unit_that_another_copy_has_finished_is_discarded(tmp_path, json_lines, text_job):
    """A node that was given up as lost may continue to write: one output stays, and nothing half-written."""
    path = json_lines("docs.jsonl", ROWS)
    reader = text_job(path).reader
    task = ShardTask(Conversion(reader), "text", tmp_path, Splits())
    chunk = Chunk(0, list(reader.records([path])))
    first: list[Outcome] = []

    def meanwhile(sample: Any) -> Any:
        if not first:
            first.append(work(task, chunk))
        return {**sample, "text": "what a lost node has read"}

    late = ShardTask(Conversion(reader, (meanwhile,)), "text", tmp_path, Splits())
    found = work(late, chunk)
    assert found.shards == first[0].shards
    assert task.finished(0) == found
    assert not list(tmp_path.glob(".*part"))


def test_a_draft_of_another_node_stays_until_it_is_old(tmp_path, json_lines, text_job):
    path = json_lines("docs.jsonl", ROWS)
    job = text_job(path)
    job.output.mkdir()
    fresh, old = (job.output / f".part-000000.tar.7@{node}.abc.part" for node in ("node-1", "node-2"))
    for draft in (fresh, old):
        draft.touch()
    os.utime(old, (0, 0))
    prepare(job, [path], Limits())
    assert fresh.exists()
    assert not old.exists()


def test_work_that_cannot_be_divided_refuses_the_engine() -> None:
    with pytest.raises(WorkbenchError, match=r"'workbench prepare linker' is one unit of work, so it has no --engine"):
        preparing.run(["linker", "graph", "--output", "out", "--engine=ray"], "workbench prepare")

"""Runs on an object store: every write may fail, the last snapshot stays whole, and the run resumes exactly."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.core import local_copies
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files import store_lock
from workbench.core.files.store_lock import StoreLock, store_locked
from workbench.core.files.stores import Store, scratch_folder
from workbench.recipe.spec import Recipe
from workbench.report.run import load_run
from workbench.runs.checkpoint import verify_checkpoint
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.runs.stored_run import StoredRun, opened_run, read_snapshot
from workbench.training.pretrain import dry_run, pretrain

RESULT = {"task": "classify", "numbers": {"accuracy": 0.5}}


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A run's place in a store of this process, with caches of its own."""
    monkeypatch.setenv("WORKBENCH_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    place = f"memory://{uuid.uuid4().hex}/runs/x"
    yield place
    store = Store(place)
    store.remove(list(store.files()))


def numbers(folder: Path) -> list[Any]:
    return [(line["step"], line["mlm/loss"], line["grad_norm"]) for line in read_metrics(folder)]


def restored(url: str, folder: Path) -> Path:
    """The run on another machine."""
    StoredRun(Store(url), folder).fetch()
    return folder


def test_run_continues_exactly_on_an_empty_machine(recipe: Recipe, url: str, tmp_path: Path) -> None:
    whole = pretrain(recipe, tmp_path / "whole", until=8)
    first = pretrain(recipe, url, until=6)
    assert first == scratch_folder(url)
    assert first.is_relative_to(tmp_path / "scratch")
    shutil.rmtree(tmp_path / "scratch")
    resumed = pretrain(recipe, url, until=8)
    assert numbers(resumed) == numbers(whole)
    other = restored(url, tmp_path / "other")
    assert numbers(other) == numbers(whole)
    latest = Checkpoints(other).latest()
    assert latest is not None
    assert verify_checkpoint(latest)["step"] == 8
    assert {path.name for path in (other / "checkpoints").iterdir()} == {"step-6", "step-8"}
    assert "lock.json" not in Store(url).files()
    assert not os.path.exists("memory:")


class Failing(Store):
    """A store that fails from a certain write on."""

    left = 10**9

    def put(self, source: Path, name: str) -> None:
        self._count()
        super().put(source, name)

    def put_bytes(self, data: bytes, name: str, *, new: bool = False) -> bool:
        if name == "snapshot.json":
            self._count()
        return super().put_bytes(data, name, new=new)

    def remove(self, names: Any) -> None:
        for name in names:
            self._count()
            super().remove([name])

    def _count(self) -> None:
        if Failing.left <= 0:
            raise MachineError("the machine is gone")
        Failing.left -= 1


def test_kill_at_any_write_leaves_a_whole_snapshot(recipe: Recipe, url: str, tmp_path: Path) -> None:
    """`best` is replaced and the oldest checkpoint removed between the two snapshots."""
    folder = pretrain(recipe, tmp_path / "run", until=4)
    (folder / "best").mkdir()
    (folder / "best" / "model.safetensors").write_bytes(b"before")
    StoredRun(Store(url), folder).push()
    before = {name: (folder / name).read_bytes() for name in read_snapshot(Store(url)) or {}}
    (folder / "best" / "model.safetensors").write_bytes(b"after")
    pretrain(recipe, folder, until=6)
    after = restored(url, tmp_path / "at-first")
    assert (after / "best" / "model.safetensors").read_bytes() == b"before"
    seen, growing = set(), ("metrics.jsonl", "log.txt", "status.json", "tensorboard/")
    for writes in range(40):
        Failing.left = writes
        run = StoredRun(Failing(url), folder)
        run.committed = read_snapshot(Store(url)) or {}
        ended = True
        try:
            run.clear()
            run.push()
        except MachineError:
            ended = False
        there = restored(url, tmp_path / f"other-{writes}")
        last = Checkpoints(there).latest()
        assert last is not None
        step = verify_checkpoint(last)["step"]
        seen.add(step)
        if step == 4:
            kept = {name: data for name, data in before.items() if not name.startswith(growing)}
            assert {name: (there / name).read_bytes() for name in kept} == kept
        assert (there / "best" / "model.safetensors").read_bytes() == (b"before" if step == 4 else b"after")
        if ended:
            break
    assert seen == {4, 6}
    StoredRun(Store(url), folder).fetch()
    run = StoredRun(Store(url), folder)
    run.fetch()
    run.clear()
    objects = {file.object for file in (read_snapshot(Store(url)) or {}).values()}
    assert set(Store(url).files()) == {*objects, "snapshot.json"}


def test_damaged_object_is_named(recipe: Recipe, url: str, tmp_path: Path) -> None:
    StoredRun(Store(url), pretrain(recipe, tmp_path / "run", until=2)).push()
    Store(url).put_bytes(b"damaged", "checkpoints/step-2/state.json")
    with pytest.raises(WorkbenchError, match=r"checkpoints/step-2/state.json is damaged"):
        pretrain(recipe, url, until=4)
    Store(url).remove(["checkpoints/step-2/state.json"])
    with pytest.raises(WorkbenchError, match=r"there is no memory://.*state.json"):
        pretrain(recipe, url, until=4)
    Store(url).put_bytes(b'{"files": {"../x": {"object": "a", "bytes": 1, "sha256": ""}}}', "snapshot.json")
    with pytest.raises(WorkbenchError, match=r"snapshot.json is damaged: '../x' is no file of a run"):
        pretrain(recipe, url, until=4)


def test_other_commands_read_the_run_and_add_results(recipe: Recipe, url: str, tmp_path: Path) -> None:
    folder = pretrain(recipe, url, until=2)
    assert dry_run(recipe, url).resume.step == 2
    assert workbench.open_run(url).metrics == read_metrics(folder)
    assert workbench.load(url).recipe.tokenizer is not None
    with opened_run(url) as run:
        (run / "evaluations").mkdir()
        (run / "evaluations" / "a.json").write_text(json.dumps(RESULT))
    assert json.loads(Store(url).read("evaluations/a.json") or b"") == RESULT
    page = workbench.write_report([url], tmp_path / "page.html")
    assert page.stat().st_size > 1000
    workbench.write_report(url)
    assert "report.html" in Store(url).files()
    pretrain(recipe, url, until=4)
    assert {"report.html", "evaluations/a.json"} <= Store(url).files().keys()
    (run / "evaluations" / "b.json").write_text("{}")
    with pytest.raises(ZeroDivisionError), opened_run(url):
        raise ZeroDivisionError
    assert not {"evaluations/b.json"} & Store(url).files().keys()


def test_results_of_a_run_as_an_object_are_stored(recipe: Recipe, url: str) -> None:
    """A run that a function returns stands for its URL, and so does a copy in the cache."""
    pretrain(recipe, url, until=2)
    corpus = next(iter(recipe.tasks["text"].corpora))
    for i, run in enumerate((workbench.open_run(url), load_run(scratch_folder(url)))):
        assert repr(run).startswith(f"<Run {url}: step 2")
        workbench.evaluate(run, "pseudo-perplexity", corpus, limit=1 + i)
        assert len([name for name in Store(url).files() if name.endswith(f"limit={1 + i}.json")]) == 1
    assert workbench.write_report(run) == f"{url}/report.html"
    assert workbench.write_report(run, f"{url}.html") == f"{url}.html"
    assert Store(url.rpartition("/")[0]).read("x.html")


def test_a_copy_in_the_cache_is_no_run(recipe: Recipe, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretrain(recipe, url, until=2)
    copy, scratch = workbench.open_run(url).folder, str(scratch_folder(url))
    monkeypatch.setattr(local_copies, "_urls", {})  # another process
    with pytest.raises(WorkbenchError, match=r"keeps copies of runs on object stores; name the URL"):
        workbench.evaluate(copy, "pseudo-perplexity", next(iter(recipe.tasks["text"].corpora)), limit=1)
    with pytest.raises(WorkbenchError, match=r"keeps copies of runs on object stores; name the URL"):
        pretrain(recipe, Path(scratch), until=4)


def test_place_is_refused_before_any_work(recipe: Recipe, tmp_path: Path) -> None:
    for written in (pretrain, workbench.pretrain):
        with pytest.raises(WorkbenchError, match=r"allowed: a path, or a URL of an object store \(s3, "):
            written(recipe, "https://example.org/runs/x")
    with pytest.raises(WorkbenchError, match=r"there is no run or checkpoint at memory://nothing/here"):
        workbench.load("memory://nothing/here")


def test_run_in_use_is_refused(recipe: Recipe, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "BEAT", 0.05)
    monkeypatch.setattr(store_lock, "POLL", 0.05)
    gone = {"host": socket.gethostname(), "pid": 2**22 + 1, "machine": store_lock._machine()}
    assert store_lock._ended_here(gone)
    assert not store_lock._ended_here(gone | {"machine": "another container of this host name"})
    with store_locked(Store(url)), pytest.raises(WorkbenchError, match=rf"is in use: process {os.getpid()} on"):
        pretrain(recipe, url, until=2)
    assert pretrain(recipe, url, until=2).is_dir()


def test_stale_lock_is_taken_over(url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Of an owner that lives elsewhere the counter decides; of a process that ended here nothing is waited for."""
    monkeypatch.setattr(store_lock, "POLL", 0.05)
    monkeypatch.setattr(store_lock, "SETTLE", 0.0)
    dead = {"token": "a", "beats": 3, "host": socket.gethostname(), "pid": 2**22 + 1}
    Store(url).put_bytes(json.dumps(dead).encode(), "lock.json")
    with store_locked(Store(url)):
        assert "taking over" in caplog.text
    monkeypatch.setattr(store_lock, "STALE", 0.2)
    Store(url).put_bytes(json.dumps({**dead, "host": "elsewhere"}).encode(), "lock.json")
    with store_locked(Store(url)):
        assert "watching its lock" in caplog.text


def test_owner_that_lost_its_lock_stops(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "BEAT", 0.02)
    lock = StoreLock(Store(url))
    lock.start()
    Store(url).put_bytes(json.dumps({"token": "other", "host": "h", "pid": 7, "since": "now"}).encode(), "lock.json")
    with pytest.raises(WorkbenchError, match=r"taken over by process 7 on h"):
        lock.check()
    waited = threading.Event()
    for _ in range(200):
        if lock._taken or waited.wait(0.01):
            break
    with pytest.raises(WorkbenchError, match=r"Two processes must not write there"):
        lock.check_beats()
    lock.end()
    assert Store(url).read("lock.json") is not None
    Store(url).remove(["lock.json"])

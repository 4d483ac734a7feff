"""Preparing again: what a killed run left goes, what is damaged is made again, changed inputs are seen."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.corpora.graph_options import build_graph
from pipelines.preparing.chunks import Limits
from tests.pipelines.jobs import prepare
from workbench.core.errors import WorkbenchError
from workbench.core.files.lock import locked
from workbench.corpora.corpus import Corpus
from workbench.corpora.verify import verify

ROWS = [{"id": f"d{i}", "text": f"document number {i} " * (1 + i % 5)} for i in range(20)]
FIVE = Limits(shard_size=5)


@pytest.fixture
def finished(json_lines: Any, text_job: Any) -> tuple[Any, Path]:
    """A job whose corpus is complete, and its input."""
    path = json_lines("docs.jsonl", ROWS)
    job = text_job(path)
    prepare(job, [path], FIVE)
    return job, path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def missing(path: Path) -> None:
    path.unlink()


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-700])


@pytest.mark.parametrize("damage", [missing, changed, cut])
def test_preparing_again_writes_a_damaged_bundle(finished: Any, damage: Any) -> None:
    job, path = finished
    before = contents(job.output)
    damage(job.output / "index.bundle")
    assert [problem.shard for problem in verify(Corpus.open(job.output))] == ["index.bundle"]
    prepare(job, [path], FIVE)
    assert contents(job.output) == before


@pytest.mark.parametrize("damage", [missing, changed, cut])
@pytest.mark.parametrize("suffix", ["tar", "index"])
def test_preparing_again_fixes_that_shard_alone(finished: Any, damage: Any, suffix: str) -> None:
    job, path = finished
    before = contents(job.output)
    times = {p.name: p.stat().st_mtime_ns for p in job.output.glob("part-*.tar")}
    damage(job.output / f"part-000002.{suffix}")
    assert list(verify(Corpus.open(job.output)))
    result = prepare(job, [path], FIVE)
    assert result.skipped == 3
    assert contents(job.output) == before
    assert list(verify(Corpus.open(job.output))) == []
    kept = {p.name for p in job.output.glob("part-*.tar") if p.stat().st_mtime_ns == times[p.name]}
    assert kept == {f"part-00000{i}.tar" for i in (0, 1, 3)}


def test_what_killed_runs_left_goes(finished: Any) -> None:
    job, path = finished
    before = contents(job.output)
    for name in (".corpus.json.abc.part", "..prepare.json.abc.part", ".part-000001.tar.abc.part"):
        (job.output / name).write_bytes(b"half")
    (job.output / ".prepare.json").write_text("{}")
    (job.output / "part-000009.tar").write_bytes(b"")
    (job.output / "part-000009.index").write_bytes(b"")
    prepare(job, [path], FIVE)
    assert contents(job.output) == before


def test_leftovers_of_an_unfinished_run_go_too(finished: Any, text_job: Any) -> None:
    job, path = finished
    before = contents(job.output)
    (job.output / "corpus.json").rename(job.output / ".corpus.json.abc.part")
    state = json.loads(before["corpus.json"])["provenance"]
    (job.output / ".prepare.json").write_text(json.dumps({name: state[name] for name in ("options", "inputs")}))
    (job.output / "..prepare.json.abc.part").write_bytes(b"half")
    assert prepare(job, [path], FIVE).skipped == 4
    assert contents(job.output) == before


def test_two_preparations_of_one_folder(finished: Any, json_lines: Any) -> None:
    job, path = finished
    before = contents(job.output)
    (job.output / "part-000001.tar").unlink()
    with locked(job.output), pytest.raises(WorkbenchError, match=r"is in use .* choose another folder"):
        prepare(job, [path], FIVE)
    prepare(job, [path], FIVE)
    assert contents(job.output) == before


@pytest.mark.parametrize("complete", [True, False])
def test_an_input_that_changed_in_its_middle(tmp_path: Path, text_job: Any, complete: bool) -> None:
    path = tmp_path / "docs.jsonl"
    lines = [json.dumps({"id": f"d{i}", "text": "word " * 2000}) for i in range(400)]
    path.write_text("\n".join(lines))
    assert path.stat().st_size > 3 << 20
    job = text_job(path)
    limits = Limits(shard_size=200)
    prepare(job, [path], limits)
    if not complete:
        provenance = json.loads((job.output / "corpus.json").read_bytes())["provenance"]
        (job.output / "corpus.json").unlink()
        (job.output / ".prepare.json").write_text(json.dumps(provenance))
    lines[200] = lines[200].replace("word", "WORD")
    path.write_text("\n".join(lines))
    with pytest.raises(WorkbenchError, match="the inputs are different or have changed"):
        prepare(job, [path], limits)


@pytest.mark.parametrize("state", [b"\xff", b"[]", b'{"options": 3, "inputs": []}', b"[" * 100_000])
def test_a_damaged_note_of_an_unfinished_run(finished: Any, state: bytes) -> None:
    job, path = finished
    (job.output / "corpus.json").unlink()
    (job.output / ".prepare.json").write_bytes(state)
    with pytest.raises(WorkbenchError, match=r"\.prepare\.json is damaged .*delete the folder"):
        prepare(job, [path], FIVE)


def graph_problems(corpus: Path) -> list[str]:
    return [f"{problem.shard}: {problem.reason}" for problem in verify(Corpus.open(corpus))]


@pytest.mark.parametrize("file", ["triples.npy", "labels.blob", "graph.json"])
@pytest.mark.parametrize("damage", [missing, changed])
def test_a_damaged_graph_is_found_and_built_again(write_triples: Path, file: str, damage: Any) -> None:
    build_graph(write_triples)
    before = contents(write_triples / "graph")
    assert graph_problems(write_triples) == []
    damage(write_triples / "graph" / file)
    (problem,) = graph_problems(write_triples)
    assert problem.startswith(f"graph/{file}: ")
    build_graph(write_triples)
    assert contents(write_triples / "graph") == before


def test_what_is_no_graph_store_is_not_removed(write_triples: Path) -> None:
    (write_triples / "graph").mkdir()
    (write_triples / "graph" / "drawing.svg").write_text("mine")
    with pytest.raises(WorkbenchError, match=r"graph is not a graph store; move it elsewhere"):
        build_graph(write_triples)
    assert (write_triples / "graph" / "drawing.svg").read_text() == "mine"


def test_a_graph_that_was_killed_half_way_goes(write_triples: Path) -> None:
    half = write_triples / f".graph.99999999@{socket.gethostname()}.x1"
    half.mkdir()
    (half / "triples.npy").write_bytes(b"half")
    build_graph(write_triples)
    assert not half.exists()


@pytest.fixture
def write_triples(tmp_path: Path) -> Path:
    """A triples corpus."""
    from workbench.corpora.manifest import finish_corpus
    from workbench.corpora.shards.writer import ShardWriter

    folder = tmp_path / "triples"
    with ShardWriter(folder / "part-0.tar", kind="triples") as writer:
        fact = {"relation": "P1", "relation_text": "is", "tail": "Q2", "tail_text": "two"}
        writer.add("Q1", {"id": "Q1", "label": "one", "triples": [fact]})
    assert writer.info is not None
    finish_corpus(folder, kind="triples", shards=[writer.info], provenance={})
    return folder

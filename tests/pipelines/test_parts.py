"""Corpora in parts: joined they are what one machine would have made."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.preparing import duplicates
from pipelines.readers.text.json_lines import TextJsonLines
from pipelines.sources import files
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus


@pytest.fixture
def texts(json_lines) -> Path:
    return json_lines("docs.jsonl", [{"id": f"d{i}", "text": "" if i % 7 == 3 else f"document {i}"} for i in range(23)])


def in_parts(texts: Path, count: int, *options: object) -> list[Path]:
    parts = [texts.with_name(f"part-{i}") for i in range(1, count + 1)]
    for i, part in enumerate(parts, 1):
        prepare("text", texts, "-o", part, "--shard-size", 3, "--workers", 1, "--part", f"{i}/{count}", *options)
    return parts


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_joined_are_the_whole(tmp_path, texts, count):
    parts = in_parts(texts, count)
    prepare("join", *reversed(parts), "-o", tmp_path / "joined")
    whole = ("text", texts, "--shard-size", 3, "--workers", 1)
    prepare(*whole, "-o", tmp_path / "whole")
    joined, made = Corpus.open(tmp_path / "joined"), Corpus.open(tmp_path / "whole")
    assert joined.identity == made.identity
    assert joined.manifest.dropped == made.manifest.dropped
    before = (tmp_path / "joined" / "corpus.json").read_bytes()
    prepare(*whole, "-o", tmp_path / "joined")
    assert (tmp_path / "joined" / "corpus.json").read_bytes() == before, "the command without parts finds it complete"


def test_duplicates_are_found_across_parts(tmp_path, json_lines):
    path = json_lines("docs.jsonl", [{"id": f"d{i}", "text": f"document {i % 4}"} for i in range(12)])
    parts = in_parts(path, 2, "--dedupe")
    assert sum(Corpus.open(part).records for part in parts) == 4


def test_parts_that_are_not_all_or_of_another_preparation(tmp_path, texts):
    parts = in_parts(texts, 3)
    with pytest.raises(WorkbenchError, match=r"parts 1/3, 2/3 were given; missing: 3/3"):
        prepare("join", *parts[:2], "-o", tmp_path / "joined")
    with pytest.raises(WorkbenchError, match=r"missing: 3/3"):
        prepare("join", *parts[:2], parts[0], "-o", tmp_path / "joined")
    prepare("text", texts, "-o", tmp_path / "other", "--shard-size", 4, "--workers", 1, "--part", "3/3")
    with pytest.raises(WorkbenchError, match=r"other was prepared with other options"):
        prepare("join", *parts[:2], tmp_path / "other", "-o", tmp_path / "joined")
    prepare("text", texts, "-o", tmp_path / "whole", "--workers", 1)
    with pytest.raises(WorkbenchError, match=r"whole was not prepared with --part"):
        prepare("join", tmp_path / "whole", "-o", tmp_path / "joined")
    with pytest.raises(WorkbenchError, match="whole holds another corpus"):
        prepare("join", *parts, "-o", tmp_path / "whole")
    shard = next(parts[1].glob("*.tar"))
    shard.write_bytes(shard.read_bytes()[:-10] + b"x" * 10)
    with pytest.raises(WorkbenchError, match=r"\.tar is damaged: run the command"):
        prepare("join", *parts, "-o", tmp_path / "joined")
    assert not (tmp_path / "joined" / "corpus.json").exists()


@pytest.mark.parametrize(("part", "message"), [("4/3", "there are 3 parts"), ("0/3", "allowed"), ("x", "i/n")])
def test_a_part_that_is_none(tmp_path, texts, part, message):
    with pytest.raises(WorkbenchError, match=message):
        prepare("text", texts, "-o", tmp_path / "out", "--part", part)


def test_more_parts_than_shards(tmp_path, texts):
    with pytest.raises(WorkbenchError, match="--part 2/2: the input has fewer shards than parts"):
        prepare("text", texts, "-o", tmp_path / "out", "--workers", 1, "--part", "2/2")
    assert not list((tmp_path / "out").glob("part-*"))


def notes(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob(".parts-*"))


def test_the_input_is_cut_once_and_each_part_reads_its_own_records(tmp_path, texts, monkeypatch):
    read: list[str] = []
    sha256 = files.sha256_of
    monkeypatch.setattr(files, "sha256_of", lambda path: read.append("checksum") or sha256(path))
    records, begun = TextJsonLines.records, TextJsonLines.records_from
    monkeypatch.setattr(TextJsonLines, "records", lambda self, paths: read.append("all") or records(self, paths))
    monkeypatch.setattr(TextJsonLines, "records_from", lambda self, at: read.append(at.number) or begun(self, at))
    parts = in_parts(texts, 3)
    assert read.count("checksum") == read.count("all") == 1
    assert [number for number in read if isinstance(number, int)] == [1, 10, 19, 4, 13, 22, 7, 16]
    assert notes(tmp_path)
    prepare("join", *parts, "-o", tmp_path / "joined")
    assert not notes(tmp_path)


def test_each_record_is_hashed_by_one_part(tmp_path, json_lines, monkeypatch):
    path = json_lines("docs.jsonl", [{"id": f"d{i}", "text": f"document {i % 7}"} for i in range(23)])
    hashed: list[Any] = []
    content_of = duplicates.content_of
    monkeypatch.setattr(duplicates, "content_of", lambda sample: hashed.append(sample["key"]) or content_of(sample))
    parts = in_parts(path, 3, "--dedupe")
    assert sorted(hashed) == sorted(f"d{i}" for i in range(23))
    prepare("join", *parts, "-o", tmp_path / "joined")
    prepare("text", path, "--shard-size", 3, "--workers", 1, "--dedupe", "-o", tmp_path / "whole")
    assert Corpus.open(tmp_path / "joined").identity == Corpus.open(tmp_path / "whole").identity


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_search_for_duplicates_cuts_the_input_for_the_work_too(tmp_path, json_lines, monkeypatch, workers):
    texts = json_lines("docs.jsonl", [{"id": f"d{i}", "text": f"document {i}"} for i in range(20)])
    cut: list[Any] = []
    records = TextJsonLines.records
    monkeypatch.setattr(TextJsonLines, "records", lambda self, paths: cut.append(paths) or records(self, paths))
    shared = ("text", texts, "--shard-size", 3, "--workers", workers)
    prepare(*shared, "--dedupe", "-o", tmp_path / "once")
    assert len(cut) == 1
    prepare(*shared, "-o", tmp_path / "plain")
    assert Corpus.open(tmp_path / "once").identity == Corpus.open(tmp_path / "plain").identity


def test_parts_of_an_input_that_cannot_be_read_from_the_middle(tmp_path, texts, caplog):
    packed = tmp_path / "docs.jsonl.gz"
    packed.write_bytes(gzip.compress(texts.read_bytes()))
    caplog.set_level("INFO", "pipelines")
    parts = in_parts(packed, 2)
    assert "each job reads all of the input" in caplog.text
    prepare("join", *parts, "-o", tmp_path / "joined")
    assert Corpus.open(tmp_path / "joined").records == 20


@pytest.mark.slow
def test_parts_of_a_corpus(tmp_path, texts):
    prepare("text", texts, "-o", tmp_path / "text", "--shard-size", 4, "--workers", 1)
    parts = [tmp_path / "one", tmp_path / "two"]
    for number, part in enumerate(parts, 1):
        prepare("corpus", tmp_path / "text", "-o", part, "--shard-size", 3, "--workers", 2, "--part", f"{number}/2")
    prepare("join", *parts, "-o", tmp_path / "joined")
    prepare("corpus", tmp_path / "text", "-o", tmp_path / "whole", "--shard-size", 3, "--workers", 1)
    assert Corpus.open(tmp_path / "joined").identity == Corpus.open(tmp_path / "whole").identity


def folder_contents(folder: Path) -> dict[str, bytes]:
    """Every file of a corpus but corpus.json, which names the command."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "corpus.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def same_as_one_command(folder: Path, whole: Path) -> None:
    """Corpora, splits and graphs of `folder` are those of `whole`."""
    for made in whole.parent.glob(f"{whole.name}*"):
        joined = folder.with_name(made.name.replace(whole.name, folder.name))
        assert folder_contents(joined) == folder_contents(made), joined
        ours, theirs = Corpus.open(joined).manifest, Corpus.open(made).manifest
        assert (ours.dropped, ours.fields, ours.about) == (theirs.dropped, theirs.fields, theirs.about)


SPLITS = ("--split", "late=0.4", "--split", "early=0.05", "--split", "never=0.0000001")


def test_splits_are_joined_with_their_corpus(tmp_path, texts, caplog):
    """Also when a pattern names them, with what an earlier call has joined."""
    parts = in_parts(texts, 3, *SPLITS)
    prepare("text", texts, "-o", tmp_path / "whole", "--shard-size", 3, "--workers", 1, *SPLITS)
    assert len(list(tmp_path.glob("part-*-late"))) == 3
    assert len(list(tmp_path.glob("part-*-early"))) in (1, 2), "not all parts i/n have a record in this split"
    prepare("join", *parts, "-o", tmp_path / "named")
    assert "the split never got no records" in caplog.text
    for _ in range(2):
        prepare("join", *sorted(tmp_path.glob("part-*")), "-o", tmp_path / "part")
    for output in ("named", "part"):
        same_as_one_command(tmp_path / output, tmp_path / "whole")
        assert not (tmp_path / f"{output}-never").exists()
        assert "split_records" not in Corpus.open(tmp_path / output).manifest.provenance
    before = (tmp_path / "named" / "corpus.json").read_bytes()
    prepare("text", texts, "-o", tmp_path / "named", "--shard-size", 3, "--workers", 1, *SPLITS)
    assert (tmp_path / "named" / "corpus.json").read_bytes() == before, "the command without parts finds it complete"


def test_splits_that_are_gone_twice_there_or_of_another_preparation(tmp_path, texts):
    parts, output = in_parts(texts, 2, *SPLITS[:2]), tmp_path / "joined"
    late = [part.with_name(f"{part.name}-late") for part in parts]
    with pytest.raises(WorkbenchError, match=r"part-1-late, .*part-2-late: parts of held-out splits alone; name the"):
        prepare("join", *late, "-o", output)
    with pytest.raises(WorkbenchError, match=r"part-1-late and .*part-1-late are both part 1/2 of the split late"):
        prepare("join", *parts, late[0], late[0], "-o", output)
    with pytest.raises(WorkbenchError, match=r"part-1 and .*part-1 are both part 1/2; name one of them"):
        prepare("join", *parts, parts[0], "-o", output)
    late[1].rename(tmp_path / "moved")
    with pytest.raises(WorkbenchError, match=r"no corpus at .*part-2-late; needed: part 2/2 of the split late"):
        prepare("join", *parts, "-o", output)
    prepare("text", texts, "-o", late[1], "--workers", 1)
    with pytest.raises(WorkbenchError, match=r"part-2-late was not prepared with .*part-2; needed: its split late"):
        prepare("join", *parts, "-o", output)
    assert not output.exists()
    prepare("join", *parts, tmp_path / "moved", "-o", output)
    assert Corpus.open(f"{output}-late").records == sum(
        map(Corpus.__len__, map(Corpus.open, (late[0], tmp_path / "moved")))
    )


@pytest.fixture
def triples(tmp_path: Path, json_lines: Any) -> tuple[object, ...]:
    """Options of a preparation in six shards; some entities are tails alone."""
    (tmp_path / "g.tsv").write_text("".join(f"Q{i}\tP{i % 3}\tQ{(i * 7 + 3) % 40}\n" for i in range(30)))
    rows = [{"id": f"Q{i}", "label": f"town {i}", "description": f"about {i}"} for i in range(25)]
    entities = json_lines("e.jsonl", rows)
    return ("triples", tmp_path / "g.tsv", "--entities", entities, "--shard-size", 5, "--workers", 1)


def test_the_graph_of_joined_triples(tmp_path, triples, capfd):
    parts = [tmp_path / f"part-{i}" for i in (1, 2)]
    for number, part in enumerate(parts, 1):
        prepare(*triples, *SPLITS[:4], "-o", part, "--part", f"{number}/2")
        assert not (part / "graph").exists()
    assert "without" not in capfd.readouterr().err, "gaps of part 1/2 mean nothing"
    prepare(*triples, *SPLITS[:4], "-o", tmp_path / "whole")
    with pytest.raises(WorkbenchError, match="--strict allows no faults"):
        prepare("join", *parts, "-o", tmp_path / "strict", "--strict")
    prepare("join", *parts, "-o", tmp_path / "joined")
    same_as_one_command(tmp_path / "joined", tmp_path / "whole")
    assert (tmp_path / "joined" / "graph" / "graph.json").is_file()
    with pytest.raises(WorkbenchError, match=r"--part 1/2 has none; give it to `prepare join`"):
        prepare(*triples, "-o", tmp_path / "x", "--part", "1/2", "--strict")
    with pytest.raises(WorkbenchError, match=r"part-1 is part 1/2 of a corpus; `workbench prepare join`"):
        prepare("graph", parts[0], "--build")


def test_the_graph_of_a_corpus_without_one(tmp_path, triples, texts):
    """Messages name the command that builds it."""
    corpus, whole = tmp_path / "corpus", tmp_path / "whole"
    prepare(*triples, *SPLITS, "-o", whole)
    prepare(*triples, *SPLITS, "-o", corpus, "--no-graph")
    for command in (("graph", corpus), ("vectors", corpus, "-o", tmp_path / "v.safetensors")):
        with pytest.raises(WorkbenchError, match=r"no graph store at .*`workbench prepare graph \S+corpus --build`"):
            prepare(*command)
    with pytest.raises(WorkbenchError, match=r"corpus is a finished corpus, .*`workbench prepare graph \S+ --build`"):
        prepare("triples", corpus, "-o", tmp_path / "x")
    prepare("graph", corpus, "--build")
    same_as_one_command(corpus, whole)
    prepare("text", texts, "-o", tmp_path / "text", "--workers", 1)
    with pytest.raises(WorkbenchError, match=r"text is a corpus of kind text; allowed: a corpus of kind triples"):
        prepare("graph", tmp_path / "text", "--build")
    with pytest.raises(
        WorkbenchError, match=r"text is a finished corpus, and `prepare text` reads raw files.*splits it$"
    ):
        prepare("text", tmp_path / "text", "-o", tmp_path / "x")


def test_parts_whose_records_all_went_to_a_split_or_are_duplicates(tmp_path, json_lines):
    texts = [f"document {i}" for i in range(8)] + ["the same"] * 8
    rows = [{"text": text, "id": f"d{i}", "split": "valid" if 4 <= i < 8 else "train"} for i, text in enumerate(texts)]
    path, options = json_lines("docs.jsonl", rows), ("--own-split", "valid", "--dedupe", "--shard-size", 4)
    parts = [tmp_path / f"part-{i}" for i in range(1, 5)]
    for number, part in enumerate(parts, 1):
        for _ in range(2):  # the second call finds it complete
            prepare("text", path, *options, "--workers", 1, "-o", part, "--part", f"{number}/4")
    assert [Corpus.open(part).records for part in parts] == [4, 0, 1, 0]
    prepare("join", *parts, "-o", tmp_path / "joined")
    prepare("text", path, *options, "--workers", 1, "-o", tmp_path / "whole")
    same_as_one_command(tmp_path / "joined", tmp_path / "whole")


def test_parts_without_any_record(tmp_path, json_lines, texts):
    held_out = in_parts(texts, 2, "--split", "late=0.9999999")
    with pytest.raises(WorkbenchError, match=r"joined: no record is left for the corpus itself.*\(late: 20\)"):
        prepare("join", *held_out, "-o", tmp_path / "joined")
    assert not list(tmp_path.glob("joined*"))
    shutil.rmtree(tmp_path / "part-1"), shutil.rmtree(tmp_path / "part-2")
    path = json_lines("docs.jsonl", [{"id": f"d{i}", "text": ""} for i in range(6)])
    parts = in_parts(path, 2)
    with pytest.raises(WorkbenchError, match="joined: the corpus would be empty: 6 x "):
        prepare("join", *parts, "-o", tmp_path / "joined")

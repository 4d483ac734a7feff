"""Corpora in parts: joined they are what one machine would have made."""

from __future__ import annotations

import gzip
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
    content_hash = duplicates.content_hash
    monkeypatch.setattr(duplicates, "content_hash", lambda sample: hashed.append(sample["key"]) or content_hash(sample))
    parts = in_parts(path, 3, "--dedupe")
    assert sorted(hashed) == sorted(f"d{i}" for i in range(23))
    prepare("join", *parts, "-o", tmp_path / "joined")
    prepare("text", path, "--shard-size", 3, "--workers", 1, "--dedupe", "-o", tmp_path / "whole")
    assert Corpus.open(tmp_path / "joined").identity == Corpus.open(tmp_path / "whole").identity


@pytest.mark.parametrize("workers", [1, 2])
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


def test_parts_of_a_corpus(tmp_path, texts):
    prepare("text", texts, "-o", tmp_path / "text", "--shard-size", 4, "--workers", 1)
    parts = [tmp_path / "one", tmp_path / "two"]
    for number, part in enumerate(parts, 1):
        prepare("corpus", tmp_path / "text", "-o", part, "--shard-size", 3, "--workers", 2, "--part", f"{number}/2")
    prepare("join", *parts, "-o", tmp_path / "joined")
    prepare("corpus", tmp_path / "text", "-o", tmp_path / "whole", "--shard-size", 3, "--workers", 1)
    assert Corpus.open(tmp_path / "joined").identity == Corpus.open(tmp_path / "whole").identity

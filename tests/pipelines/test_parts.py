"""Corpora in parts: joined they are what one machine would have made."""

from __future__ import annotations

from pathlib import Path

import pytest

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

"""Shards are ordinary WebDataset tars, written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset

from workbench.core.errors import WorkbenchError
from workbench.core.files import drafts as files
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus, parse_manifest
from workbench.corpora.shards import index as index_module
from workbench.corpora.shards import writer as writer_module
from workbench.corpora.shards.record import decode, encode
from workbench.corpora.shards.writer import ShardWriter, finished_shard

READING = ("key", "corpus", "draw")


def stored(sample: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in sample.items() if k not in READING}


def fill(path: Path, texts: list[tuple[str, str]]) -> ShardWriter:
    with ShardWriter(path, kind="text") as writer:
        for key, text in texts:
            writer.add(key, {"text": text})
    return writer


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def test_every_kind_comes_back_as_it_went_in(write: Any, texts: Any, images: Any) -> None:
    triples = [
        {
            "id": f"Q{i}",
            "label": f"thing {i}",
            "aliases": ["x", "ÿ"],
            "description": "d",
            "types": ["Q5"],
            "triples": [{"relation": "P1", "relation_text": "is", "tail": "Q2", "tail_text": "two"}] * (i % 3),
            "labels": {"class": i},
        }
        for i in range(5)
    ]
    for kind, samples in (("text", texts(20)), ("image-text", images(9)), ("triples", triples)):
        corpus = write(samples, kind=kind, name=f"a {kind}")
        read = [corpus.read(s, r) for s, info in enumerate(corpus.shards) for r in range(info.records)]
        assert [r["key"] for r in read] == [f"r{i}" for i in range(len(samples))]
        assert all(same(stored(r), s) for r, s in zip(read, samples, strict=True))
        assert corpus.manifest.fields[next(iter(samples[0]))] == len(samples)


def test_region_features_keep_their_type(images: Any) -> None:
    """A corpus that is read and written again (linking) would grow to twice its size."""
    members = encode(images(1)[0], "image-text").members
    read = decode(members)
    assert read["regions"]["features"].dtype == np.float16
    assert encode(read, "image-text").members["regions.npz"] == members["regions.npz"]


def test_webdataset_reads_our_shards(write: Any, images: Any) -> None:
    samples = images(9)
    corpus = write(samples, kind="image-text", shard_size=4)
    paths = [str(Path(corpus.place, info.name)) for info in corpus.shards]
    read = list(webdataset.WebDataset(paths, shardshuffle=False, empty_check=False))
    assert [r["__key__"] for r in read] == [f"r{i}" for i in range(9)]
    for ours, theirs in zip(samples, read, strict=True):
        assert json.loads(theirs["json"])["captions"] == ours["captions"]
        assert theirs.get("jpg", theirs.get("png")) == ours["image"]


def test_equal_input_gives_equal_bytes(write: Any, images: Any) -> None:
    first = write(images(5), kind="image-text", name="one")
    second = write(images(5), kind="image-text", name="two")
    assert [s.sha256 for s in first.shards] == [s.sha256 for s in second.shards]
    assert [s.index_sha256 for s in first.shards] == [s.index_sha256 for s in second.shards]


@pytest.mark.parametrize("key", ["a.b", "a/b", "", "..", "__x__", "a\nb", "a\\b"])
def test_a_key_that_webdataset_would_misread_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(WorkbenchError, match="cannot be a key"), ShardWriter(tmp_path / "s.tar", kind="text") as writer:
        writer.add(key, {"text": "x"})
    assert not list(tmp_path.iterdir())


def test_a_duplicate_key_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"s\.tar: the key 'k' was written before"):
        fill(tmp_path / "s.tar", [("k", "x"), ("k", "y")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["write", "fsync", "index"])
def test_disk_full_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if where == "fsync":
        monkeypatch.setattr(files.os, "fsync", full)
    if where == "write":
        monkeypatch.setattr(writer_module.tarfile.TarFile, "addfile", full)
    if where == "index":
        monkeypatch.setattr(index_module, "save", full)
    with pytest.raises(WorkbenchError, match="disk is full"):
        fill(tmp_path / "s.tar", [("a", "x"), ("b", "x" * 100_000)])
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
    assert finished_shard(tmp_path / "s.tar") is None


def test_a_real_full_disk(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(WorkbenchError, match="disk is full"), files.explained(tmp_path / "x"):
        Path("/dev/full").write_bytes(b"x" * 100_000)


def test_an_interrupted_shard_is_not_finished_and_a_finished_one_is(tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    with pytest.raises(KeyboardInterrupt), ShardWriter(path, kind="text") as writer:  # noqa: PT012
        writer.add("a", {"text": "x"})
        raise KeyboardInterrupt
    assert finished_shard(path) is None
    assert not list(tmp_path.iterdir())
    with ShardWriter(path, kind="text") as writer:
        writer.add("a", {"text": "x"})
        writer.drop("too short", 3)
    assert finished_shard(path) == writer.info
    assert writer.info is not None
    assert writer.info.dropped == {"too short": 3}
    with open(path, "ab") as tar:
        tar.write(b"more")
    assert finished_shard(path) is None
    path.with_suffix(".index").write_bytes(b"garbage")
    assert finished_shard(path) is None


def test_rewriting_a_shard_unfinishes_the_old_one_first(tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    with ShardWriter(path, kind="text") as writer:
        writer.add("a", {"text": "x"})
    with pytest.raises(RuntimeError), ShardWriter(path, kind="text"):
        raise RuntimeError
    assert finished_shard(path) is None


@pytest.mark.parametrize(
    ("sample", "kind", "message"),
    [
        ({"text": "abc", "spans": [[1, 9, "Q1", 1.0]]}, "text", "outside its text of 3 characters"),
        ({"text": "abc", "spans": [[2, 2, "Q1", 1.0]]}, "text", "outside"),
        ({"text": "abcdef", "spans": [[3, 4, "Q1", 1.0], [0, 1, "Q1", 1.0]]}, "text", "sort them"),
        ({"text": "abc", "spans": [["0", 1]]}, "text", "spans: .*not .start, end, entity id, score"),
        ({"txt": "abc"}, "text", "Did you mean 'text'"),
        ({}, "text", "lacks text"),
        ({"text": 3}, "text", "is of type int"),
        ({"text": "\ud800"}, "text", "UTF-8"),
        ({"text": "a", "meta": {"x": object()}}, "text", "UTF-8 JSON"),
        ({"image": b"<html>not found</html>"}, "image-text", "neither JPEG nor PNG"),
        ({"text": "abc"}, "video", "unknown kind"),
    ],
)
def test_wrong_samples_are_refused(sample: dict[str, Any], kind: str, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        encode(sample, kind)


def test_regions_that_need_pickle_are_refused(encoded: Callable[..., bytes]) -> None:
    sample = {"image": encoded(), "regions": {"features": np.array([object()])}}
    with pytest.raises(WorkbenchError, match="Python objects"):
        encode(sample, "image-text")


def test_an_empty_corpus_is_refused_with_the_reasons(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "s.tar", kind="text") as writer:
        writer.drop("too short", 2)
    assert writer.info is not None
    with pytest.raises(WorkbenchError, match="would be empty: 2 x too short"):
        finish_corpus(tmp_path, kind="text", shards=[writer.info], provenance={})
    assert not (tmp_path / "corpus.json").exists()


def test_the_manifest_counts_and_comes_back(write: Any, texts: Any) -> None:
    corpus = write(texts(20), shard_size=6)
    manifest = parse_manifest(Path(corpus.place, "corpus.json").read_bytes(), "corpus.json")
    assert manifest == corpus.manifest
    assert manifest.records == 20
    assert [s.records for s in manifest.shards] == [6, 6, 6, 2]
    assert manifest.lengths == {"text": sum(len(s["text"]) for s in texts(20))}
    assert manifest.bytes == sum(Path(corpus.place, s.name).stat().st_size for s in manifest.shards)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "not a corpus manifest"),
        (b'{"kind": "txt", "shards": []}', "Did you mean 'text'"),
        (b'{"kind": "text", "shards": [], "schema": 9}', "schema version 9"),
        (b'{"kind": "text", "shards": [{"name": "x"}]}', "damaged or from another version"),
        (
            b'{"kind": "text", "shards": [{"name": "x", "index": "x", "records": 1, "bytes": 1, "sha256": "../../x", '
            b'"index_sha256": ""}]}',
            "no SHA-256 checksums",
        ),
    ],
)
def test_damaged_manifests_are_explained(data: bytes, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        parse_manifest(data, "corpus.json")


def test_opening_something_else_says_what_to_do(tmp_path: Path, make_tar: Any) -> None:
    with pytest.raises(WorkbenchError, match="the folder does not exist"):
        Corpus.open(tmp_path / "nowhere")
    with pytest.raises(WorkbenchError, match="workbench prepare"):
        Corpus.open(tmp_path)
    tar = make_tar([("a.txt", b"x")])
    with pytest.raises(WorkbenchError, match="workbench index"):
        Corpus.open(tar.parent)


def test_long_and_unicode_keys_are_found_by_tarfile_too(tmp_path: Path) -> None:
    key = "ключ" * 40
    with ShardWriter(tmp_path / "s.tar", kind="text") as writer:
        writer.add(key, {"text": "x"})
        writer.add("b", {"text": "y"})
    with tarfile.open(tmp_path / "s.tar") as tar:
        assert tar.getnames() == [f"{key}.json", "b.json"]
    assert writer.info is not None
    finish_corpus(tmp_path, kind="text", shards=[writer.info], provenance={})
    corpus = Corpus.open(tmp_path)
    assert [corpus.read(0, r)["text"] for r in (0, 1)] == ["x", "y"]
    assert corpus.read(0, 0)["key"] == key

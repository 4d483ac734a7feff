"""Existing WebDatasets become corpora by indexing; unreadable content is refused with advice."""

from __future__ import annotations

import json
import logging
import math
import uuid
from pathlib import Path
from typing import Any

import pytest
import webdataset

from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import Store
from workbench.corpora.corpus import Corpus
from workbench.corpora.foreign import index_foreign
from workbench.corpora.reading.reader import Reader
from workbench.corpora.verify import verify


def test_an_image_text_set(make_tar: Any, encoded: Any) -> None:
    image = encoded()
    tar = make_tar(
        [
            ("d/0001.jpg", image),
            ("d/0001.txt", b"a caption\n"),
            ("d/0001.json", json.dumps({"url": "http://x", "width": 8, "caption": "other"}).encode()),
            ("d/0002.JPG", image),
            ("d/0002.txt", "größer".encode()),
            ("d/0002.cls", b"7"),
        ],
        name="a set/part-0.tar",
    )
    before = tar.read_bytes()
    manifest = index_foreign([tar.parent], tar.parent)
    assert tar.read_bytes() == before
    assert (manifest.kind, manifest.records, manifest.lengths["captions"]) == ("image-text", 2, 2)
    assert manifest.fields == {"captions": 2, "image": 2, "meta": 1, "labels": 1}
    corpus = Corpus.open(tar.parent)
    first, second = corpus.read(0, 0), corpus.read(0, 1)
    assert (first["key"], first["captions"], first["image"]) == ("d/0001", ["a caption"], image)
    assert first["meta"] == {"url": "http://x", "width": 8, "caption": "other"}
    assert (second["captions"], second["labels"]) == (["größer"], {"cls": 7})
    assert list(verify(corpus)) == []


def test_a_text_set_is_cut_into_windows(make_tar: Any, tmp_path: Path) -> None:
    texts = {f"t{i}": f"A sentence of text {i}. " * 20 for i in range(6)}
    items = list(texts.items())
    for shard in range(2):
        make_tar([(f"{k}.txt", t.encode()) for k, t in items[shard * 3 : shard * 3 + 3]], name=f"set/{shard}.tar")
    index_foreign([tmp_path / "set"], tmp_path / "indexed")
    assert not list((tmp_path / "set").glob("*.index"))
    corpus = Corpus.open(tmp_path / "indexed")
    passed = Reader.finite([corpus], lanes=1, micro_batch_size=1000, unit="text", window=100)
    joined: dict[str, str] = {}
    for sample in passed.micro_batch(0, 0):
        assert len(sample["text"]) <= 100
        joined[sample["key"]] = joined.get(sample["key"], "") + sample["text"]
    assert joined == texts


def test_set_at_a_url_is_indexed_there_or_here(make_tar: Any, tmp_path: Path) -> None:
    store = Store(f"memory://{uuid.uuid4().hex}/set")
    for shard in range(2):
        tar = make_tar([(f"{shard}-{i}.txt", f"Text {i}.".encode()) for i in range(3)], name=f"set/{shard}.tar")
        store.put(tar, f"{shard}.tar")
    here = index_foreign([tar.parent], tar.parent)
    for output in (store.url, tmp_path / "indexed"):
        manifest = index_foreign([store.url], output)
        assert [info.sha256 for info in manifest.shards] == [info.sha256 for info in here.shards]
        corpus = Corpus.open(output)
        assert [sample["text"] for sample in corpus] == ["Text 0.", "Text 1.", "Text 2."] * 2
        assert list(verify(corpus)) == []
    assert [info.name for info in Corpus.open(store.url).shards] == ["0.tar", "1.tar"]
    assert [info.name for info in Corpus.open(tmp_path / "indexed").shards] == [store.at("0.tar"), store.at("1.tar")]
    assert index_foreign([store.at("1.tar")], tmp_path / "one").records == 3
    with pytest.raises(WorkbenchError, match=r"memory://nothing/here: no .tar files here"):
        index_foreign(["memory://nothing/here"], tmp_path / "none")
    with pytest.raises(WorkbenchError, match=r"is on this machine, so its index must be too: --output FOLDER"):
        index_foreign([tar], store.url)
    with pytest.raises(WorkbenchError, match=r"set/0\.tar is not below memory://.*/set-index\. .* --output FOLDER"):
        index_foreign([store.url], f"{store.url}-index")


def test_the_kind_of_json_records_is_detected(make_tar: Any) -> None:
    tar = make_tar([("a.json", b'{"text": "hello", "language": "en"}')])
    assert index_foreign([tar], tar.parent).kind == "text"
    sample = Corpus.open(tar.parent).read(0, 0)
    assert (sample["text"], sample["language"]) == ("hello", "en")


def test_records_are_those_of_webdataset(make_tar: Any, encoded: Any) -> None:
    members = [
        ("__meta__", b"x"),
        ("a.jpg", encoded()),
        ("a.txt", b"1"),
        ("noext", b""),
        ("b/c.png", encoded()),
        ("b/c.txt", b"2"),
    ]
    tar = make_tar(members)
    index_foreign([tar], tar.parent)
    corpus = Corpus.open(tar.parent)
    theirs = [
        {"key": r["__key__"], **{k: v for k, v in r.items() if not k.startswith("__")}}
        for r in webdataset.WebDataset(str(tar), shardshuffle=False, empty_check=False)
    ]
    ours = [{"key": corpus.index(0).key(r), **corpus.raw(0, r)} for r in range(corpus.records)]
    assert ours == theirs


def test_subfolders_are_named_relative_to_the_corpus(make_tar: Any, tmp_path: Path) -> None:
    for part in "ab":
        make_tar([(f"{part}.txt", b"x")], name=f"set/{part}/0.tar")
    index_foreign([tmp_path / "set"], tmp_path / "set")
    (tmp_path / "set").rename(tmp_path / "moved")
    corpus = Corpus.open(tmp_path / "moved")
    assert [corpus.read(s, 0)["key"] for s in (0, 1)] == ["a", "b"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            [("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3")],
            r"part-0\.tar: the members of the key 'a' are not adjacent",
        ),
        ([("a.txt", b"1"), ("a.txt", b"2")], r"the key 'a' has the member 'txt' twice"),
        ([("a.txt", b"\xffa")], r"part-0\.tar, key 'a': member txt is not UTF-8"),
        ([("a.txt", b"x"), ("a.cls", b"dog")], "member cls is not an integer"),
        ([("x.input.jpg", b"\xff\xd8\xff")], r"x\.input\.jpg is key x with member input\.jpg"),
        ([("a.pdf", b"x")], "the kind cannot be detected"),
        ([("a.json", b"[1]")], "member json holds a list"),
        ([], "no records in 1 tars"),
    ],
)
def test_bad_sets_are_refused(make_tar: Any, members: list[tuple[str, bytes]], message: str) -> None:
    tar = make_tar(members)
    with pytest.raises(WorkbenchError, match=message):
        index_foreign([tar], tar.parent)
    assert not (tar.parent / "corpus.json").exists()


def test_json_as_python_writes_it_is_read(make_tar: Any) -> None:
    """NaN and half a surrogate pair are no JSON, but downloaded sets hold them."""
    tar = make_tar([("a.json", b'{"text": "x", "similarity": NaN, "broken": "\\ud83d"}')])
    index_foreign([tar], tar.parent)
    meta = Corpus.open(tar.parent).read(0, 0)["meta"]
    assert math.isnan(meta["similarity"])
    assert meta["broken"] == "\ud83d"


def test_the_two_dot_trap_is_warned_of(make_tar: Any, encoded: Any, caplog: pytest.LogCaptureFixture) -> None:
    tar = make_tar([("a.jpg", encoded()), ("a.mask.png", encoded()), ("a.txt", b"x")])
    with caplog.at_level(logging.WARNING):
        index_foreign([tar], tar.parent)
    assert "1 x mask.png" in caplog.text
    assert "two dots" in caplog.text


def test_compressed_tars_are_refused_with_advice(make_tar: Any, tmp_path: Path) -> None:
    packed = make_tar([("a.txt", b"x")], name="packed/part.tar.gz", mode="w:gz")
    with pytest.raises(WorkbenchError, match=r"is compressed .* gunzip"):
        index_foreign([packed.parent], packed.parent)
    disguised = packed.rename(packed.with_name("part.tar"))
    with pytest.raises(WorkbenchError, match=r"is compressed \(gzip\).*Repack"):
        index_foreign([disguised], tmp_path / "out")


def test_a_truncated_foreign_tar_names_the_member(make_tar: Any) -> None:
    tar = make_tar([(f"k{i}.txt", b"x" * 3000) for i in range(4)])
    with open(tar, "r+b") as file:
        file.truncate(512 + 3072 + 512 + 1000)
    with pytest.raises(
        WorkbenchError, match=r"part-0\.tar: the tar is truncated or damaged at or after member 'k1\.txt'"
    ):
        index_foreign([tar], tar.parent)


def test_missing_inputs_and_own_corpora_are_refused(write: Any, texts: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="there is no file or folder"):
        index_foreign([tmp_path / "nowhere"], tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkbenchError, match=r"no \.tar files here"):
        index_foreign([tmp_path / "empty"], tmp_path)
    corpus = write(texts(3))
    with pytest.raises(WorkbenchError, match="needs no indexing"):
        index_foreign([Path(corpus.place)], Path(corpus.place))
    with pytest.raises(WorkbenchError, match="Did you mean 'text'"):
        index_foreign([Path(corpus.place)], tmp_path / "x", kind="txt")


def test_records_that_cannot_be_used_are_counted_by_their_reason(make_tar: Any, encoded: Any, caplog: Any) -> None:
    """A first record without its image neither stops the indexing nor changes the kind to text."""
    image = encoded()
    lost = [("0.txt", b"its image is lost"), ("1.jpg", image), ("1.txt", b"good")]
    damaged = [("2.jpg", image), ("2.txt", b"caf\xe9"), ("3.jpg", image), ("3.json", b"{"), ("4.png", image)]
    tar = make_tar([*lost, *damaged], name="a/0.tar")
    make_tar([("5.txt", b"lost too"), ("6.jpg", image), ("6.txt", b"good")], name="a/1.tar")
    with pytest.raises(WorkbenchError, match=r"key '0': .* without image .*with --on-error skip"):
        index_foreign([tar.parent], tar.parent)
    manifest = index_foreign([tar.parent], tar.parent, on_error="skip")
    assert (manifest.kind, manifest.records) == ("image-text", 3)
    assert sum(manifest.dropped.values()) == 4
    assert {reason.split(" of kind")[0] for reason in manifest.dropped} == {
        "a record",
        "member txt is not UTF-8",
        "member json is not JSON",
    }
    corpus = Corpus.open(tar.parent)
    assert [corpus.read(0, i)["key"] for i in range(2)] == ["1", "4"]
    assert list(verify(corpus)) == []
    assert "1 of 3 records have none of captions" in caplog.text


@pytest.mark.parametrize(
    ("stored", "captions"),
    [
        ({"caption": ["a dog", "one dog"]}, ["a dog", "one dog"]),
        ({"text": "a cat"}, ["a cat"]),
        ({"captions": ["a cow"], "caption": "other"}, ["a cow"]),
        ({"caption": [], "text": ["a hen"]}, ["a hen"]),
        ({"caption": {"en": "a dog"}}, None),
        ({"caption": [1]}, None),
    ],
)
def test_captions_in_json(make_tar: Any, encoded: Any, caplog: Any, stored: Any, captions: list[str] | None) -> None:
    tar = make_tar([("0.jpg", encoded()), ("0.json", json.dumps(stored).encode())])
    index_foreign([tar.parent], tar.parent)
    assert Corpus.open(tar.parent).read(0, 0).get("captions") == captions
    assert ("have none of captions" in caplog.text) == (captions is None)


def test_all_records_of_tars_one_behind_another_are_read(make_tar: Any, tmp_path: Path, caplog: Any) -> None:
    parts = [make_tar([(f"{i}.txt", f"text {i}".encode())], name=f"{i}.tar").read_bytes() for i in range(3)]
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "all.tar").write_bytes(b"".join(parts))
    manifest = index_foreign([tmp_path / "set"], tmp_path / "set")
    corpus = Corpus.open(tmp_path / "set")
    assert [corpus.read(0, i)["text"] for i in range(manifest.records)] == ["text 0", "text 1", "text 2"]
    assert "another tar begins after the end mark" in caplog.text
    assert list(verify(corpus)) == []
    (tmp_path / "set" / "all.tar").write_bytes(b"".join(parts) + b"rubbish" * 100)
    with pytest.raises(WorkbenchError, match="truncated or damaged"):
        index_foreign([tmp_path / "set"], tmp_path / "set")

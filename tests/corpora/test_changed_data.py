"""Data that was changed after it was written is not read, and `verify` lists it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import parse_manifest
from workbench.corpora.reading import items
from workbench.corpora.reading.items import CorpusItems
from workbench.corpora.shards.index import ShardIndex
from workbench.corpora.verify import verify


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new, 1))


def test_a_word_changed_in_a_shard(write: Any) -> None:
    corpus = write([{"text": "Paris is a town"}, {"text": "so is Rome"}])
    change(Path(corpus.place, corpus.shards[0].name), b"Paris", b"Basel")
    with pytest.raises(WorkbenchError, match=r"part-000000\.tar: the checksum of this shard differs.*prepare it again"):
        Corpus.open(corpus.place).read(0, 0)
    assert Corpus.open(corpus.place, verify=False).read(0, 0)["text"] == "Basel is a town"


def test_a_changed_index(write: Any) -> None:
    corpus = write([{"text": "Paris is a town"}])
    change(Path(corpus.place, corpus.shards[0].index), b"r0", b"r9")
    for verified in (True, False):
        with pytest.raises(WorkbenchError, match=r"part-000000\.index: the checksum of this index differs"):
            Corpus.open(corpus.place, verify=verified).read(0, 0)


def without_a_shard(tree: Any) -> None:
    del tree["shards"][1]


def with_another_kind(tree: Any) -> None:
    tree["kind"] = "image-text"


def with_other_counts(tree: Any) -> None:
    tree["shards"][0]["lengths"]["text"] += 1


@pytest.mark.parametrize("edit", [without_a_shard, with_another_kind, with_other_counts])
def test_a_changed_manifest(write: Any, texts: Any, edit: Callable[[Any], None]) -> None:
    place = Path(write(texts(20)).place, "corpus.json")
    tree = json.loads(place.read_bytes())
    edit(tree)
    place.write_text(json.dumps(tree))
    with pytest.raises(WorkbenchError, match="was changed or damaged after it was written"):
        Corpus.open(place.parent)


@pytest.mark.parametrize(
    ("key", "value"),
    [("shards", [7]), ("shards", {}), ("kind", ["text"]), ("fields", 3), ("about", "x"), ("foreign", 1), ("more", 1)],
)
def test_a_manifest_of_wrong_types_without_a_digest(write: Any, texts: Any, key: str, value: Any) -> None:
    tree = json.loads(Path(write(texts(3)).place, "corpus.json").read_bytes())
    del tree["digest"]
    with pytest.raises(WorkbenchError, match="there"):
        parse_manifest(json.dumps({**tree, key: value}).encode(), "there")
    for field in ("records", "name", "lengths", "sha256"):
        shard = {**tree["shards"][0], field: [value]}
        with pytest.raises(WorkbenchError, match="damaged or from another version"):
            parse_manifest(json.dumps({**tree, "shards": [shard]}).encode(), "there")


def test_the_identity_is_that_of_the_content(write: Any, texts: Any) -> None:
    one, same, other = (write(texts(9, seed), name=name) for seed, name in ((0, "one"), (0, "same"), (1, "other")))
    assert one.identity == same.identity == Corpus.open(one.place).identity
    assert one.identity != other.identity


def test_a_damaged_copy_in_the_cache_is_fetched_again(write: Any, texts: Any, tmp_path: Path) -> None:
    local = write([{"text": "Paris is a town"}])
    fsspec.filesystem("memory").put(local.place + "/", "memory://bucket/damaged/", recursive=True)
    cache = tmp_path / "cache"
    Corpus.open("memory://bucket/damaged", cache=cache).shard(0)
    (copy,) = cache.rglob("*.tar")
    change(copy, b"Paris", b"Basel")
    assert Corpus.open("memory://bucket/damaged", cache=cache).read(0, 0)["text"] == "Paris is a town"
    change(copy, b"Paris", b"Basel")
    fsspec.filesystem("memory").rm("memory://bucket/damaged/part-000000.tar")
    with pytest.raises(WorkbenchError, match="cannot be read"):
        Corpus.open("memory://bucket/damaged", cache=cache).read(0, 0)


def test_damaged_window_counts_are_counted_again(
    write: Any, texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "REMEMBERED", 1)
    place = write(texts(20)).place

    def counts() -> list[int]:
        return CorpusItems(Corpus.open(place, cache=tmp_path / "cache"), "text", 30).counts.tolist()

    expected = counts()
    (kept,) = (tmp_path / "cache" / "windows").iterdir()
    assert counts() == expected
    kept.write_bytes(kept.read_bytes()[:-1] + b"\x01")
    assert counts() == expected


def tampered(path: Path, **changed: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change arrays of an index file (`length_text` stands for `length.text`)."""
    with safe_open(path, framework="numpy") as file:
        arrays, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    for name, edit in changed.items():
        arrays[name.replace("length_", "length.")] = edit(arrays[name.replace("length_", "length.")].copy())
    save_file(arrays, path, about)


def at(place: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def edit(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return edit


TAMPERED: dict[str, tuple[dict[str, Callable[[np.ndarray], np.ndarray]], str]] = {
    "offset beyond the shard": ({"member_offsets": at(0, 10**9)}, "lies outside of the shard"),
    "offset that overflows": ({"member_offsets": at(0, 2**63 - 1)}, "lies outside of the shard"),
    "negative size": ({"member_sizes": at(0, -1)}, "lies outside of the shard"),
    "a member without a name": ({"member_names": at(0, 7)}, "no name"),
    "members that fall": ({"member_starts": at(1, 99)}, "do not rise"),
    "starts that end early": ({"member_starts": lambda a: a[:-1]}, "do not begin at 0 and end at"),
    "no starts": ({"member_starts": lambda a: a[:0]}, "do not begin at 0 and end at"),
    "key starts from 1": ({"key_starts": at(0, 1)}, "do not begin at 0"),
    "keys of other bytes": ({"keys": at(0, 0xFF)}, "not UTF-8"),
    "petabytes of text": ({"length_text": at(0, 10**15)}, "does not fit the shard"),
    "negative length": ({"length_text": at(0, -5)}, "does not fit the shard"),
    "cuts behind the text": ({"cuts": at(0, 10**9)}, "cut points do not rise"),
    "other cut starts": ({"cut_starts": at(1, -3)}, "do not rise"),
    "an array of another type": ({"member_sizes": lambda a: a.astype(np.float64)}, "is of type 'F64'"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_an_index_that_contradicts_itself(write: Any, case: str) -> None:
    corpus = write([{"text": "A first sentence. " * 9}, {"text": "Paris"}])
    path = Path(corpus.place, corpus.shards[0].index)
    changes, reason = TAMPERED[case]
    tampered(path, **changes)
    with pytest.raises(WorkbenchError, match=f"the index is damaged .*{reason}"):
        ShardIndex(path)


def test_verify_lists_damaged_indexes_and_continues(write: Any, texts: Any) -> None:
    corpus = write(texts(30), shard_size=10)
    tampered(Path(corpus.place, corpus.shards[0].index), length_text=at(0, 10**15))
    Path(corpus.place, corpus.shards[1].index).write_bytes(b"\xff" * 100)
    change(Path(corpus.place, corpus.shards[2].name), b'"text"', b"#text#")
    found = [(problem.shard, problem.reason) for problem in verify(Corpus.open(corpus.place))]
    assert {shard for shard, _ in found} == {info.name for info in corpus.shards}
    assert sum("the checksum of this index differs" in reason for _, reason in found) == 2


def test_verify_survives_what_its_libraries_do(write: Any, texts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: Any) -> None:
        raise MemoryError("petabytes")

    monkeypatch.setattr("workbench.corpora.verify.cuts_of", out_of_memory)
    found = list(verify(write(texts(3))))
    assert [problem.key for problem in found] == ["r0", "r1", "r2"]
    assert all("cannot be checked: MemoryError" in problem.reason for problem in found)

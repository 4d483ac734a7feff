"""Corpora on an object store: the bytes of a local preparation, whatever write failed before, and who reads them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files import store_lock
from workbench.core.files.stores import Store, scratch_folder
from workbench.corpora.verify import verify

TEXTS = [f"The river runs past the town number {n}, where people buy old bread." for n in range(40)]
OPTIONS: dict[str, Any] = {"shard_size": 10, "split": {"held-out": 0.2}, "option": {"document": "line"}}


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A corpus's place in a store of this process; the current folder and the caches are empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    root = f"memory://{uuid.uuid4().hex}"
    yield f"{root}/corpora/text"
    store = Store(root)
    store.remove(list(store.files()))


def content(folder: Path | str) -> dict[str, bytes]:
    """All files of a corpus and its split, without the provenance."""
    found: dict[str, bytes] = {}
    for place in (str(folder), f"{folder}-held-out"):
        if "://" in place:
            store = Store(place)
            files = {name: store.read(name) or b"" for name in store.files()}
        else:
            files = {
                str(path.relative_to(place)): path.read_bytes() for path in Path(place).rglob("*") if path.is_file()
            }
        found |= {f"{place.rpartition('/')[2]}/{name}": data for name, data in files.items()}
    for name in [name for name in found if name.endswith("corpus.json")]:
        found[name] = json.dumps(json.loads(found[name])["shards"]).encode()
    return found


def test_store_has_what_a_folder_would_have(url: str, tmp_path: Path) -> None:
    workbench.prepare_text("texts.txt", "text", **OPTIONS)
    corpus = workbench.prepare_text("texts.txt", url, **OPTIONS)
    assert corpus.place == url
    assert content(url) == content("text")
    assert not list(verify(corpus))
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "scratch", "text", "text-held-out", "texts.txt"}
    assert not list(scratch_folder(url).parent.iterdir())
    again = workbench.prepare_text("texts.txt", url, **OPTIONS)
    assert again.identity == corpus.identity
    with pytest.raises(WorkbenchError, match=rf"{url} was begun with other options"):
        workbench.prepare_text("texts.txt", url, **{**OPTIONS, "shard_size": 11})
    assert content(url) == content("text")


def test_preparation_resumes_after_any_failed_write(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run fails at a later write, on an empty scratch folder; each shard is written once more at most."""
    workbench.prepare_text("texts.txt", "text", **OPTIONS)
    left, tars, put, put_bytes = 0, 0, Store.put, Store.put_bytes

    def failing(store: Store, source: Path, name: str) -> None:
        nonlocal left, tars
        if left <= 0:
            raise MachineError("the machine is gone")
        left, tars = left - 1, tars + name.endswith(".tar")
        put(store, source, name)

    monkeypatch.setattr(Store, "put", failing)
    for writes in range(1, 40):
        left = writes
        try:
            workbench.prepare_text("texts.txt", url, **OPTIONS)
            break
        except MachineError:
            assert "corpus.json" not in Store(url).files()
    else:
        pytest.fail("it never ended")
    assert 8 <= tars <= 8 + writes
    assert content(url) == content("text")
    assert put_bytes is Store.put_bytes


def test_foreign_shards_are_left_alone(url: str) -> None:
    Store(url).put_bytes(b"mine", "part-000000.tar")
    with pytest.raises(WorkbenchError, match=rf"{url} holds shards of another corpus"):
        workbench.prepare_text("texts.txt", url, **OPTIONS)
    assert Store(url).read("part-000000.tar") == b"mine"


def test_nothing_is_left_where_no_record_is_kept(url: str) -> None:
    Path("blank.txt").write_text("\n\n")
    with pytest.raises(WorkbenchError):
        workbench.prepare_text("blank.txt", url)
    assert Store(url).files() == {}


def test_two_preparations_exclude_each_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "BEAT", 0.05)
    monkeypatch.setattr(store_lock, "POLL", 0.05)
    with (
        store_lock.store_locked(Store(url)),
        pytest.raises(WorkbenchError, match=rf"{url} is in use: process \d+ on"),
    ):
        workbench.prepare_text("texts.txt", url, **OPTIONS)


def test_inputs_and_corpora_are_read_from_the_store(url: str) -> None:
    raw = Store(url.rpartition("/")[0] + "/raw")
    raw.put(Path("texts.txt"), "a/texts.txt")
    raw.put(Path("texts.txt"), "b/texts.txt")
    one = workbench.prepare_text(raw.at("a/texts.txt"), url, option={"document": "line"})
    assert len(one) == 40
    both = workbench.prepare_text(raw.url, "both", option={"document": "line"}, numbered_keys=True)
    matching = workbench.prepare_text(raw.at("*/t*.txt"), "matching", option={"document": "line"}, numbered_keys=True)
    assert len(both) == len(matching) == 80
    with pytest.raises(WorkbenchError, match=r"there is no file or folder memory://.*/raw/none.txt"):
        workbench.prepare_text(raw.at("none.txt"), "none")
    half = workbench.prepare("corpus", corpus=url, output=f"{url}-half", split={"held-out": 0.5})
    assert 0 < len(half) < 40
    tokens = raw.at("tokenizer.json")
    workbench.prepare("tokenizer", corpora=url, output=tokens, vocab_size=60)
    recipe = workbench.load_recipe("tiny-text", {"tokenizer": tokens, "tasks.text.corpora": [url]})
    assert next(workbench.open_corpus(url).batches(recipe)).views["main"].size > 0


def test_part_needs_a_folder(url: str) -> None:
    with pytest.raises(WorkbenchError, match="with --part it is a path on this machine") as refused:
        workbench.prepare("text", output=url, inputs="texts.txt", part="1/2")
    assert url in str(refused.value)
    assert Store(url).files() == {}

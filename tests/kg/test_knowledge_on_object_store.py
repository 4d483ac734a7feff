"""Graphs, linkers, vectors and weights on a real S3 server of this machine: fetched where they are read."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest

import workbench
from kg.graph.store import GraphStore
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.object_store import BUCKET, Proxy, object_store, upload
from workbench.cli.app import app, reported
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import Store, local_copy
from workbench.core.terminal import PlainFormatter
from workbench.runs.data_record import read_data

pytest.importorskip("moto.server")
pytest.importorskip("s3fs")
pytestmark = pytest.mark.scale
TOWNS = ["Lyon", "Paris", "Rome", "Turin"]
TRIPLES = "".join(f"Q{i}\tP1\tQ{(i + 1) % 4}\n" for i in range(4))
AT = f"s3://{BUCKET}"
KEYS: dict[str, Any] = {"vars.corpus": f"{AT}/linked", "vars.graph": f"{AT}/graph", "tokenizer": f"{AT}/tokenizer.json"}
KEYS |= {"train.max_steps": 2, "train.num_workers": 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """An S3 server with raw files of a graph and of texts."""
    folder = tmp_path_factory.mktemp("store")
    with object_store(folder) as (proxy, variables), pytest.MonkeyPatch.context() as patch:
        for name, value in {**variables, "WORKBENCH_CACHE": str(folder / "cache")}.items():
            patch.setenv(name, value)
        raw = folder / "raw"
        raw.mkdir()
        (raw / "triples.tsv").write_text(TRIPLES)
        rows = [{"id": f"Q{i}", "label": name, "description": f"a town called {name}"} for i, name in enumerate(TOWNS)]
        (raw / "entities.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (raw / "notes.txt").write_text("".join(f"{one} is near {two}.\n" for one in TOWNS for two in TOWNS) * 4)
        upload(raw, "raw")
        yield proxy


@pytest.fixture(scope="module")
def prepared(server: Proxy) -> None:
    """A graph, a linker, a linked corpus and a tokenizer, all on the store."""
    workbench.prepare_triples(f"{AT}/raw/triples.tsv", f"{AT}/graph", entities=f"{AT}/raw/entities.jsonl")
    made = workbench.prepare("linker", graph=f"{AT}/graph", output=f"{AT}/linker")
    assert made == f"{AT}/linker"
    workbench.prepare_text(f"{AT}/raw/notes.txt", f"{AT}/text", option={"document": "line"}, numbered_keys=True)
    workbench.link(f"{AT}/text", f"{AT}/linked", linker=f"{AT}/linker")
    workbench.prepare("tokenizer", corpora=f"{AT}/text", output=f"{AT}/tokenizer.json", vocab_size=80)


@pytest.fixture(scope="module")
def trained(prepared: None) -> None:
    """A run on the store."""
    workbench.pretrain("tiny-knowledge", f"{AT}/runs/first", KEYS)


def write(url: str, content: bytes) -> None:
    Store(url.rpartition("/")[0]).put_bytes(content, url.rpartition("/")[2])


def test_graph_and_linker_are_written_and_read(prepared: None) -> None:
    names = set(Store(f"{AT}/graph").files())
    assert {"corpus.json", "graph/graph.json", "graph/triples.npy"} <= names
    store = GraphStore.open(f"{AT}/graph")
    assert (store.num_triples, store.num_entities) == (4, 4)
    assert not list(store.path.parent.glob("*.tar")), "shards of a corpus are not copied with its graph"
    assert store.identity == GraphStore.open(f"{AT}/graph/graph").identity
    (first, second, *_) = workbench.open_corpus(f"{AT}/linked")[1]["spans"]
    assert (first[2], second[2]) == ("Q0", "Q1")
    with pytest.raises(WorkbenchError, match=rf"output: {AT}/linker has files already, such as"):
        workbench.prepare("linker", graph=f"{AT}/graph", output=f"{AT}/linker")


def test_graph_of_stored_triples_is_built_later(prepared: None) -> None:
    raw, plain = f"{AT}/raw/triples.tsv", f"{AT}/plain"
    workbench.prepare_triples(raw, plain, entities=f"{AT}/raw/entities.jsonl", graph=False, split=["late=0.5"])
    workbench.prepare_triples(raw, f"{AT}/at-once", entities=f"{AT}/raw/entities.jsonl", split=["late=0.5"])
    with pytest.raises(WorkbenchError, match=rf"no graph store at {plain} .*`workbench prepare graph {plain} --build`"):
        workbench.prepare("vectors", graph=plain, output=f"{AT}/v.safetensors")
    workbench.prepare("graph", graph=plain, build=True)
    assert GraphStore.open(plain).identity == GraphStore.open(f"{AT}/at-once").identity


def test_run_reads_graph_and_weights_of_a_store(trained: None, tmp_path: Path) -> None:
    place = tmp_path / "second"
    second = workbench.pretrain("tiny-knowledge", place, {**KEYS, "model.init_from": f"{AT}/runs/first"})
    read = (read_data(place) or {})["read"]
    assert read["graph"] == {f"{AT}/graph/graph": GraphStore.open(f"{AT}/graph").identity}
    assert list(read["weights"]) == [f"{AT}/runs/first"]
    assert second.recipe["model"]["init_from"][0]["weights"] == f"{AT}/runs/first"
    local = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    assert not [path for path in local if b"/cache/" in path.read_bytes()], "a record names a copy"
    found = workbench.evaluate(place, "pseudo-perplexity", f"{AT}/linked", limit=4)
    assert "/cache/" not in json.dumps(found.record())


PRINTING = [
    (["report", f"{AT}/runs/first", "--output"], f"{AT}/report.html"),
    (["recipes", "--draw", "tiny-text", "--output"], f"{AT}/drawing.svg"),
    (["export", f"{AT}/runs/first", "--as", "bert", "--output"], f"{AT}/exported"),
    (["encode", f"{AT}/runs/first", f"{AT}/raw/notes.txt", "--output"], f"{AT}/notes.safetensors"),
    (["generate", f"{AT}/runs/none", f"{AT}/raw/notes.txt", "--output"], f"{AT}/runs/none"),
    (["prepare", "graph", f"{AT}/graph", "Q0", "--draw"], f"{AT}/near.svg"),
    (["prepare", "graph"], f"{AT}/graph"),
    (["show"], f"{AT}/runs/first"),
    (["prepare", "token-counts", f"{AT}/text", "--tokenizer", f"{AT}/tokenizer.json", "--output"], f"{AT}/counts.json"),
]


@pytest.mark.parametrize(("words", "place"), PRINTING, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_what_is_printed_names_the_url(
    trained: None, words: list[str], place: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Of what was written or read, and never a copy of it."""
    caplog.set_level(logging.INFO)
    with suppress(SystemExit), reported():
        app.run([*words, place], "workbench")
    captured = capsys.readouterr()
    lines = PlainFormatter("%(message)s")
    printed = captured.out + captured.err + "".join(map(lines.format, caplog.records))
    assert place in printed
    assert not re.search(r"/cache/|/tmp", printed), printed


def test_changed_vectors_are_fetched_again_and_refused_by_their_run(server: Proxy, tmp_path: Path) -> None:
    import torch

    def vectors(value: float) -> bytes:
        made = GraphVectors(["Q0", "Q1"], torch.full((2, 4), value), ["P1"], torch.zeros(1, 4))
        save_vectors(made, tmp_path / "made.safetensors")
        return (tmp_path / "made.safetensors").read_bytes()

    url = f"{AT}/vectors.safetensors"

    def table() -> Any:
        return build("embedding", {"embedding": "kg.entity_table", "path": url})

    write(url, vectors(1.0))
    first = table()
    server.misbehave("", "", 0)
    assert float(table().vectors.sum()) == 8.0
    assert not server.gets("vectors.safetensors"), "fetched once"
    write(url, vectors(2.0))
    assert float(table().vectors.sum()) == 16.0
    assert float(first.vectors.sum()) == 8.0, "a copy in use stays"


def test_folder_is_fetched_whole_and_again_where_it_changed(server: Proxy, tmp_path: Path) -> None:
    """Also where a file changes that keeps its size."""
    (tmp_path / "x").mkdir()
    for name, text in (("a.txt", "one"), ("b.txt", "two")):
        (tmp_path / "x" / name).write_text(text)
    url = upload(tmp_path / "x", "folder")
    before = local_copy(url)
    write(f"{url}/b.txt", b"TWO")
    after = local_copy(url)
    assert [path.name for path in sorted(after.iterdir())] == ["a.txt", "b.txt"]
    assert ((before / "b.txt").read_text(), (after / "b.txt").read_text()) == ("two", "TWO")
    fsspec.filesystem("s3").rm(f"{url}/a.txt")
    assert [path.name for path in local_copy(url).iterdir()] == ["b.txt"]


def test_a_node_fetches_a_folder_once(server: Proxy, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one" * 100)
    url = upload(tmp_path, "once")
    server.misbehave("slow0.3", "once/a.txt")
    with ThreadPoolExecutor(4) as pool:  # each has a lock of its own, as processes have
        copies = set(pool.map(lambda _: local_copy(url), range(4)))
    assert len(copies) == 1
    assert len(server.gets("once/a.txt")) == 1
    server.behave()


def test_slow_or_missing_store_is_said_with_the_key(
    prepared: None, server: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE_TRIES", "2")
    write(f"{AT}/late.safetensors", b"no vectors")
    server.misbehave("busy", "late.safetensors", 1)
    with caplog.at_level(logging.WARNING), pytest.raises(WorkbenchError, match=f"{AT}/late.safetensors is no"):
        build("embedding", {"embedding": "kg.entity_table", "path": f"{AT}/late.safetensors"})
    assert "try 1 of 2" in caplog.text
    server.behave()
    with pytest.raises(WorkbenchError, match=rf"kg.entity_table': path: .*{AT}/graf"):
        build("embedding", {"embedding": "kg.entity_table", "path": f"{AT}/graf"})

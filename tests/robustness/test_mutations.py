"""Files of every kind with random damage: refused in one message, or read as they were. Nothing else ever comes out.

The damage is that of `make soak` (`tests.robustness.soak.damage`), which continues with it for hours on larger worlds.
A failure names the file, the damage and the seed that repeats it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kg.graph.store import GraphStore
from kg.linking.linker import Linker
from kg.vectors.vectors import GraphVectors, load_vectors, save_vectors
from tests.robustness.soak.damage import damaged
from tests.robustness.soak.readers import digest
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.corpora.foreign import index_foreign
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.reading.items import CorpusItems
from workbench.corpora.shards.writer import ShardWriter
from workbench.corpora.verify import verify
from workbench.runs.data_record import check_data, keep_data, refuse_other
from workbench.text.tokenizer import Tokenizer, train_tokenizer

TRIALS = 40
"""Mutations of each target: some 20 ms each."""
TEXTS = ["Paris lies in France, by a wide river. It is old.", "Rome and Turin.", "\u5317\u4eac\u3002 and Paris."] * 2
TRIPLES = [("Q1", "P1", "Q4"), ("Q2", "P1", "Q5"), ("Q3", "P1", "Q5"), ("Q2", "P2", "Q3")]
LABELS = {"Q1": "Paris", "Q2": "Rome", "Q3": "Turin", "Q4": "France", "Q5": "Italy"}


def write(folder: Path, kind: str, samples: list[dict[str, Any]]) -> None:
    infos = []
    for first in range(0, len(samples), 3):
        with ShardWriter(folder / f"part-{first}.tar", kind=kind) as writer:
            for i, sample in enumerate(samples[first : first + 3], first):
                writer.add(f"r{i}", sample)
        assert writer.info is not None
        infos.append(writer.info)
    finish_corpus(folder, kind=kind, shards=infos, provenance={"command": "test"})


def write_texts(folder: Path) -> None:
    write(folder, "text", [{"text": text, "spans": [[0, 4, "Q1", 1.0]], "meta": {"n": 1}} for text in TEXTS])


def write_images(folder: Path) -> None:
    boxes = np.array([[0, 0, 0.5, 0.5], [0.1, 0.2, 0.3, 1]], np.float32)
    regions = {"features": np.arange(6, dtype=np.float16).reshape(2, 3), "boxes": boxes}
    image = b"\xff\xd8\xff" + bytes(range(200))
    write(folder, "image-text", [{"image": image, "captions": ["a", "b"], "regions": regions} for _ in range(4)])


def write_facts(folder: Path) -> None:
    facts = [{"relation": r, "relation_text": "", "tail": t, "tail_text": LABELS[t]} for _, r, t in TRIPLES]
    write(folder, "triples", [{"id": f"Q{i}", "label": "x", "triples": facts} for i in range(1, 5)])


def write_graph(folder: Path) -> GraphStore:
    texts = [{"id": id, "label": label, "description": f"{label} is it"} for id, label in LABELS.items()]
    return GraphStore.build(TRIPLES, folder / "graph", entity_texts=texts, relation_labels={"P1": "country"})


def write_vectors(folder: Path) -> None:
    numbers = torch.arange(15.0).reshape(5, 3)
    save_vectors(
        GraphVectors(list(LABELS), numbers, ["P1", "P2"], numbers[:2].clone(), {"model": "none"}),
        folder / "v.safetensors",
    )


def write_linker(folder: Path) -> None:
    Linker.from_store(write_graph(folder)).save(folder / "linker")
    shutil.rmtree(folder / "graph")


def write_run(folder: Path) -> None:
    folder.mkdir()
    Tokenizer(train_tokenizer(TEXTS * 3, "wordpiece", 60)).save(folder / "tokenizer.json")
    with noted() as read:
        Tokenizer.load(folder / "tokenizer.json")
    keep_data(folder, check_data(folder, read, {}, 0, World()))


def write_tars(folder: Path) -> None:
    write_texts(folder)
    for path in [*folder.glob("*.index"), folder / "corpus.json"]:
        path.unlink()


def read_corpus(folder: Path, unit: str | None = None) -> Any:
    corpus = Corpus.open(folder)
    items = CorpusItems(corpus, unit, 20 if unit == "text" else None)
    return [items.read(s, i) for s, count in enumerate(items.counts.tolist()) for i in range(count)]


def read_texts(folder: Path) -> Any:
    return read_corpus(folder, "text")


def read_images(folder: Path) -> Any:
    return read_corpus(folder, "captions")


def read_facts(folder: Path) -> Any:
    return read_corpus(folder, "triples")


def read_verified(folder: Path) -> Any:
    found = list(verify(Corpus.open(folder)))
    if found:
        raise WorkbenchError(f"{len(found)} problems")
    return read_corpus(folder)


def read_graph(folder: Path) -> Any:
    store = GraphStore.open(folder / "graph")
    rows = range(store.num_entities)
    return [list(store.triples()), [(store.label_of(r), store.texts_of(r)) for r in rows], store.incoming("Q5")]


def read_vectors(folder: Path) -> Any:
    found = load_vectors(folder / "v.safetensors")
    return [list(found.ids), found.vectors, list(found.relation_ids), found.relations, found.provenance]


def read_linker(folder: Path) -> Any:
    linker = Linker.load(folder / "linker")
    return [list(linker.link_many(TEXTS)), linker.candidates("Paris")]


def read_run(folder: Path) -> Any:
    with noted() as read:
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
    refuse_other(folder, read)
    return [encoded.ids for encoded in tokenizer.encode_batch(TEXTS)]


def read_tars(folder: Path) -> Any:
    """Whatever is in tars without checksums is what `index` found there."""
    shutil.rmtree(folder.parent / "indexed", ignore_errors=True)
    index_foreign([folder], folder.parent / "indexed", kind="text")
    return read_corpus(folder.parent / "indexed")


Write, Read = Callable[[Path], Any], Callable[[Path], Any]
TARGETS: dict[str, tuple[Write, Read]] = {
    "text": (write_texts, read_texts),
    "image-text": (write_images, read_images),
    "triples": (write_facts, read_facts),
    "verify": (write_texts, read_verified),
    "graph": (write_graph, read_graph),
    "vectors": (write_vectors, read_vectors),
    "linker": (write_linker, read_linker),
    "tokenizer of a run": (write_run, read_run),
    "foreign tars": (write_tars, read_tars),
}
UNSIGNED = ("foreign tars",)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("CRITICAL"):
        yield


@pytest.mark.parametrize("name", TARGETS)
def test_damage_is_refused_or_without_consequence(name: str, tmp_path: Path) -> None:
    write_target, read = TARGETS[name]
    folder = tmp_path / "target"
    write_target(folder)
    whole = digest(read(folder))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    refused = 0
    for seed in range(TRIALS):
        rng = random.Random(f"{name} {seed}")
        file = rng.choice(files)
        before = file.read_bytes()
        kind, data = damaged(before, rng) if before else ("appended", b"x")
        file.unlink()  # what is mapped of it stays as it is
        file.write_bytes(data)
        try:
            found = digest(read(folder))
        except WorkbenchError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"{name}, {file.name}, {kind}, seed {seed}: {error!r}") from error
        else:
            assert found == whole or name in UNSIGNED, f"{name}, {file.name}, {kind}, seed {seed}: silent"
        file.unlink()
        file.write_bytes(before)
    assert digest(read(folder)) == whole
    assert refused > TRIALS // 4

"""What is damaged, and how it is read: each reading returns a value to compare with that of the undamaged files."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

Read = Callable[[Path], Any]
SENTENCES = [
    "Oslo lies in Norway, by a wide river.",
    "Many people live in Lima; most of them work.",
    "Cairo 1999 \u5317\u4eac",
]


@dataclass(frozen=True)
class Target:
    """A thing that may be damaged.

    Args:
        place: where it lies in the world; `files`, the pattern of its files.
        read: raises WorkbenchError, or returns what it read, for a copy of the world.
        signed: other content must be noticed (a checksum covers it); false for files that people may edit.
    """

    place: str
    files: str
    read: Read
    signed: bool = True


def digest(value: Any) -> str:
    """A checksum of plain values, arrays and tensors."""
    found = hashlib.sha256()
    for part in _flat(value):
        found.update(part)
    return found.hexdigest()


def _flat(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield repr(key).encode("utf-8", "surrogatepass")
            yield from _flat(value[key])
    elif isinstance(value, list | tuple):
        yield b"["
        for inner in value:
            yield from _flat(inner)
        yield b"]"
    elif isinstance(value, torch.Tensor):
        yield from _flat(value.numpy())
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    else:
        yield repr(value).encode("utf-8", "surrogatepass")


def corpus(name: str, unit: str | None, window: int | None = None) -> Read:
    """All items, as training reads them."""

    def read(world: Path) -> str:
        from workbench.corpora.corpus import Corpus
        from workbench.corpora.reading.reader import Reader

        every = Reader.finite([Corpus.open(world / name)], lanes=1, micro_batch_size=16, unit=unit, window=window)
        return digest([every.micro_batch(number, 0) for number in range(every.steps)])

    return read


def verified(name: str) -> Read:
    """The problems that `verify` finds: it may find none, or other ones, but must not fail."""

    def read(world: Path) -> str:
        from workbench.corpora.corpus import Corpus
        from workbench.corpora.verify import verify

        list(verify(Corpus.open(world / name)))
        return ""

    return read


def graph(world: Path) -> str:
    """Triples in both directions, ids and texts."""
    from kg.graph.store import GraphStore

    store = GraphStore.open(world / "corpora/graph/graph")
    entities, rows = list(store.ids), range(store.num_entities)
    around = [(store.neighbours(e), store.incoming(e), store.label(e)) for e in entities]
    return digest([entities, list(store.triples()), around, [(store.label_of(r), store.texts_of(r)) for r in rows]])


def vectors(world: Path) -> str:
    """Ids and arrays."""
    from kg.vectors.vectors import load_vectors

    found = load_vectors(world / "corpora/vectors.safetensors")
    return digest([found.ids, found.vectors, found.relation_ids, found.relations])


def linker(world: Path) -> str:
    """The links of some sentences, and the candidates of every name."""
    from kg.linking.linker import Linker

    found = Linker.load(world / "corpora/linker")
    return digest([list(found.link_many(SENTENCES)), [found.candidates(n) for n in ("Oslo", "Lima", "Norway", "Giza")]])


def tokenizer(world: Path) -> str:
    """The ids of some sentences."""
    from workbench.text.tokenizer import Tokenizer

    found = Tokenizer.load(world / "corpora/tokenizer.json")
    return digest([list(map(int, encoding.ids)) for encoding in found.encode_batch(SENTENCES)])


def loaded(world: Path) -> str:
    """The weights of a run, as `workbench.load` returns them."""
    import workbench

    return digest(dict(workbench.load(world / "run").torch.state_dict()))


def resumed(world: Path) -> str:
    """A run that continues by one step: its losses, and what it saves."""
    import workbench
    from workbench.runs.checkpoints import Checkpoints
    from workbench.runs.folder import read_recipe
    from workbench.runs.metrics_file import read_metrics
    from workbench.training.pretrain import pretrain

    folder = world / "going-on"
    shutil.copytree(world / "run", folder)
    shutil.rmtree(folder / "checkpoints/step-4")
    try:
        pretrain(read_recipe(folder), folder, until=3)
        steps = Checkpoints(folder).steps()
        losses = [[r.get("mlm/loss"), r.get("grad_norm")] for r in read_metrics(folder) if r["step"] >= 3]
        return digest([steps[-1:], losses, dict(workbench.load(folder).torch.state_dict())])
    finally:
        shutil.rmtree(folder)


def measured(world: Path) -> str:
    """metrics.jsonl."""
    from workbench.runs.metrics_file import read_metrics

    return digest(read_metrics(world / "run"))


def reported(world: Path) -> str:
    """The page about a run can be written, whatever it says."""
    from workbench.cli.report import report

    report([world / "run"], output=world / "report.html")
    return ""


SHARDS = ("*.tar", "*.index", "corpus.json")
TARGETS: dict[str, Target] = {
    **{f"text {files}": Target("corpora/text", files, corpus("corpora/text", "text", 60)) for files in SHARDS},
    **{f"pairs {files}": Target("corpora/pairs", files, corpus("corpora/pairs", "captions")) for files in SHARDS},
    **{
        f"linked {files}": Target("corpora/wiki-linked", files, corpus("corpora/wiki-linked", None)) for files in SHARDS
    },
    **{f"triples {files}": Target("corpora/graph", files, corpus("corpora/graph", "triples")) for files in SHARDS},
    **{f"regions {files}": Target("corpora/regions", files, corpus("corpora/regions", None)) for files in SHARDS},
    "verify text": Target("corpora/text", "*", verified("corpora/text")),
    "verify pairs": Target("corpora/pairs", "*", verified("corpora/pairs")),
    "verify triples": Target("corpora/graph", "*", verified("corpora/graph")),
    "graph": Target("corpora/graph", "graph/*", graph),
    "vectors": Target("corpora/vectors.safetensors", "", vectors),
    "linker": Target("corpora/linker", "*", linker),
    "tokenizer": Target("corpora/tokenizer.json", "", tokenizer, signed=False),
    "weights": Target("run", "checkpoints/step-4/model.safetensors", loaded),
    "recipe of a run": Target("run", "recipe.yaml", loaded, signed=False),
    "state": Target("run", "checkpoints/step-2/state.json", resumed),
    "moments": Target("run", "checkpoints/step-2/trainer.pt", resumed),
    "metrics": Target("run", "metrics.jsonl", measured, signed=False),
    "metrics, continuing": Target("run", "metrics.jsonl", resumed),
    "report": Target("run", "[rm]*.*", reported, signed=False),
}
SLOW = ("state", "moments", "metrics, continuing", "report", "regions *.tar", "regions *.index", "regions corpus.json")
"""Drawn seldom: a reading takes a large part of a second, or the corpus takes long to make."""

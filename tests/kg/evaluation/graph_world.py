"""Towns in countries as a graph with held-out triples, a tokenizer, vectors, and a small KG-BERT."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from kg.graph.store import GraphStore
from kg.vectors.vectors import GraphVectors, save_vectors
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.pretrain import pretrain

TOWNS, COUNTRIES = 13, 4
LONELY = "t12"
"""A town that the graph describes, in none of its triples."""
NAMES = {f"t{i}": f"{'abcdefghijklm'[i]}ville" for i in range(TOWNS)} | {f"c{i}": f"land{i}" for i in range(COUNTRIES)}
TRIPLES = [(f"t{i}", "country", f"c{i % 4}") for i in range(9)] + [(f"t{i}", "near", f"t{i + 4}") for i in range(8)]
HELD_OUT = {
    "test": [("t9", "country", "c1"), ("t10", "country", "c2"), (LONELY, "country", "c0"), ("t8", "near", "t0")],
    "test-false": [("t9", "country", "c0"), ("t10", "country", "c3"), (LONELY, "country", "c1")],
    "valid": [("t11", "country", "c3")],
    "valid-false": [("t11", "country", "c0"), ("t9", "country", "c2")],
}


def write_triples(folder: Path, triples: Iterable[tuple[str, str, str]]) -> Path:
    """A triples corpus without a store, a record for each head."""
    heads: dict[str, list[dict[str, str]]] = {}
    for head, relation, tail in triples:
        heads.setdefault(head, []).append({"relation": relation, "tail": tail})
    with ShardWriter(folder / "part-000000.tar", kind="triples") as writer:
        for head, facts in heads.items():
            writer.add(head, {"id": head, "triples": facts})
    assert writer.info is not None
    finish_corpus(folder, kind="triples", shards=[writer.info], provenance={"command": "test"})
    return folder


def make_graph_world(folder: Path) -> Path:
    """graph, its held-out parts (`HELD_OUT`), tokenizer.json, vectors.safetensors; run, and bare without the head."""
    described = {name: {"label": label, "description": f"known as {label}"} for name, label in NAMES.items()}
    GraphStore.build(
        TRIPLES, folder / "graph" / "graph", entity_texts=described, relation_labels={"country": "lies in"}
    )
    write_triples(folder / "graph", TRIPLES)
    for name, triples in HELD_OUT.items():
        write_triples(folder / name, triples)
        GraphStore.build(triples, folder / name / "graph")
    words = [*NAMES.values(), "lies in near known as"] * 3
    Tokenizer(train_tokenizer(words, "wordpiece", 120)).save(folder / "tokenizer.json")
    generator = torch.Generator().manual_seed(0)
    entity, relation = (torch.randn(count, 8, generator=generator) for count in (len(NAMES), 2))
    save_vectors(
        GraphVectors(sorted(NAMES), entity, ["near", "country"], relation, {"model": "TransE"}),
        folder / "v.safetensors",
    )
    run = recipe_tree(folder, {"objective": "kg.triple_classification", "graph": str(folder / "graph"), "dropout": 0.0})
    pretrain(recipe_from_dict(run), folder / "run")
    pretrain(recipe_from_dict(recipe_tree(folder, {"objective": "mlm"})), folder / "bare", until=1)
    return folder


def recipe_tree(world: Path, objective: dict[str, Any], steps: int = 3) -> dict[str, Any]:
    """A small encoder of triples."""
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    text = {"embedding": "token", "hidden_size": 16, "max_positions": 24, "token_types": 2, "dropout": 0.0}
    graph = str(world / "graph")
    sequence = {"builder": "kg.graph_triple", "graph": graph, "max_length": 24}
    return {
        "tokenizer": str(world / "tokenizer.json"),
        "model": {"streams": {"text": text}, "layers": [{**layer, "repeat": 2}], "poolers": ["text"]},
        "tasks": {"triples": {"corpora": [graph], "sequence": sequence, "objectives": [objective]}},
        "train": {
            "max_steps": steps,
            "global_batch_size": 8,
            "micro_batch_size": 4,
            "lr": 5e-3,
            "num_workers": 0,
        },
    }

"""A tiny world of towns in countries: corpora, a graph, entity vectors, a tokenizer, and a pretrained run on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from kg.graph.store import GraphStore
from kg.vectors.vectors import GraphVectors, save_vectors
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.reading import load_recipe
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.pretrain import pretrain

COUNTRIES = ["france", "spain", "norway", "italy"]
TOWNS = [f"{a}{b}" for a in ("lo", "ma", "ti", "ru") for b in ("ville", "burg", "polis", "ton", "stead", "mouth")]
WORDINGS = ["{s} is a town in {o} .", "the town of {s} lies in {o} .", "{o} is the home of {s} ."]


def country_of(town: int) -> int:
    return town % len(COUNTRIES)


def fact(town: int, wording: str) -> dict[str, Any]:
    """A record of a facts corpus."""
    subject, wanted = TOWNS[town], COUNTRIES[country_of(town)]
    text = wording.format(s=subject, o=wanted)
    at, place = text.index(subject), text.index(wanted)
    spans = sorted(
        [[at, at + len(subject), f"t{town}", 1.0], [place, place + len(wanted), f"c{country_of(town)}", 1.0]]
    )
    meta = {"relation": "country", "subject": f"t{town}", "object": f"c{country_of(town)}"}
    return {"text": text, "spans": spans, "mask_spans": [[place, place + len(wanted)]], "meta": meta}


def typed(name: str, entity: str, types: list[str], before: str) -> dict[str, Any]:
    """A record of a typing set."""
    start = len(before) + 1
    mention = [start, start + len(name)]
    return {
        "text": f"{before} {name} / today .",
        "spans": [[*mention, entity, 1.0]],
        "mention": mention,
        "types": types,
        "meta": {},
    }


def typing_records(test: bool) -> list[dict[str, Any]]:
    """The test set has other entities. All have one name, so only their vectors determine the types."""
    return [
        typed("the stead", f"t{i}", ["place", "city" if i % 2 else "town"], before)
        for i in range(len(TOWNS))
        if (i >= 16) == test
        for before in ("we saw", "she wrote of")
    ]


def write(folder: Path, records: list[dict[str, Any]]) -> None:
    with ShardWriter(folder / "part-000000.tar", kind="text") as writer:
        for i, record in enumerate(records):
            writer.add(f"r{i}", record)
    assert writer.info is not None
    finish_corpus(folder, kind="text", shards=[writer.info], provenance={"command": "test", "inputs": []})


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds facts, facts-unseen, typing, typing-test, graph, entities.safetensors, tokenizer.json, candidates.json."""
    torch.set_num_threads(1)
    return make_world(tmp_path_factory.mktemp("kg-world"))


def make_world(folder: Path) -> Path:
    """As `world`, in the folder."""
    write(folder / "facts", [fact(t, w) for t in range(8) for w in WORDINGS])
    write(folder / "facts-unseen", [fact(t, WORDINGS[t % 3]) for t in range(18, 24)])
    write(folder / "typing", typing_records(test=False))
    write(folder / "typing-test", typing_records(test=True))
    triples = [(f"t{t}", "country", f"c{country_of(t)}") for t in range(len(TOWNS))]
    names = {f"t{i}": n for i, n in enumerate(TOWNS)} | {f"c{i}": n for i, n in enumerate(COUNTRIES)}
    GraphStore.build(triples, folder / "graph", entity_texts={e: {"label": n} for e, n in names.items()})
    vectors = torch.randn(len(names), 8, generator=torch.Generator().manual_seed(0)) * 0.3
    vectors[1 : len(TOWNS) : 2, 0] += 2  # the cities
    save_vectors(GraphVectors(list(names), vectors, ["country"], torch.zeros(1, 8)), folder / "entities.safetensors")
    texts = [r["text"] for r in [fact(t, w) for t in range(24) for w in WORDINGS] + typing_records(False)]
    Tokenizer(train_tokenizer(texts, "wordpiece", 300)).save(folder / "tokenizer.json")
    candidates = {"country": [{"id": f"c{i}", "label": n} for i, n in enumerate(COUNTRIES)]}
    (folder / "candidates.json").write_text(json.dumps(candidates))
    return folder


def recipe_tree(world: Path, knowledge: str) -> dict[str, Any]:
    """A small model of the facts; `knowledge` is tree, entities or none."""
    plain = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    streams: dict[str, Any] = {
        "text": {"embedding": "token", "hidden_size": 32, "max_positions": 40, "dropout": 0.0},
    }
    layers: list[dict[str, Any]] = [{**plain, "repeat": 2, "norm_place": "pre"}]
    steps: list[dict[str, Any]] = []
    if knowledge == "tree":
        steps = [{"transform": "kg.sentence_tree", "graph": str(world / "graph"), "max_length": 40}]
    if knowledge == "entities":
        streams["entity"] = {
            "embedding": "kg.entity_table",
            "path": str(world / "entities.safetensors"),
        }
        fused = {
            "layer": "kg.aggregator",
            "streams": ["text", "entity"],
            "num_heads": [2, 2],
            "dropout": 0.0,
        }
        fused |= {"attention_dropout": 0.0, "norm_place": "pre"}
        layers = [{**fused, "entity_attention": False}, {**fused, "entity_output": False}]
        steps = [{"transform": "kg.entity_stream", "table": str(world / "entities.safetensors")}]
    return {
        "tokenizer": str(world / "tokenizer.json"),
        "model": {"streams": streams, "layers": layers, "init_range": 0.15},
        "tasks": {
            "facts": {
                "corpora": [str(world / "facts")],
                "sequence": {"builder": "document", "max_length": 24, "transforms": steps},
                "objectives": [
                    {"objective": "mlm", "rate": 0.01, "masking": "field", "replace": {"mask": 1.0, "random": 0.0}}
                ],
            }
        },
        "train": {
            "max_steps": 80,
            "global_batch_size": 24,
            "micro_batch_size": 24,
            "lr": 1e-2,
            "lr_schedule": {"lr_schedule": "linear", "warmup_steps": 6},
            "num_workers": 0,
        },
    }


@pytest.fixture(scope="session")
def make_run(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A pretrained run with knowledge `tree`, `entities` or `none`; one per kind."""
    made: dict[str, Path] = {}

    def make(knowledge: str) -> Path:
        if knowledge not in made:
            folder = tmp_path_factory.mktemp(f"run-{knowledge}")
            path = folder / "tiny.yaml"
            path.write_text(yaml.safe_dump(recipe_tree(world, knowledge)))
            made[knowledge] = pretrain(load_recipe(str(path)), folder / "run")
        return made[knowledge]

    return make

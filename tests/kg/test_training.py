"""The knowledge parts together: samples -> trees and entity streams -> a model whose losses fall."""

from __future__ import annotations

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers

from kg.graph.entity_facts import Fact
from workbench.components.controls import CONTROLS
from workbench.core.options.values import check
from workbench.models.network import Network
from workbench.pretraining.forward import ViewKey
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.task import Task
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import NetworkSpec, TaskSpec
from workbench.text.tokenizer import Tokenizer

NAMES = ["lyon", "paris", "rome", "turin", "france", "italy"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, "is", "in", "near", "country", "."]


class Graph:
    def __contains__(self, entity):
        return int(entity[1:]) < len(NAMES)

    def facts(self, entity, direction, relations):
        tail = "Q4" if entity in ("Q0", "Q1") else "Q5"
        return [Fact("country", tail, False)] if entity in ("Q0", "Q1", "Q2", "Q3") else []

    def name_of(self, entity):
        return NAMES[int(entity[1:])]

    def relation_label(self, relation):
        return relation

    def under(self, control, seed):
        return self


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    backend = tokenizers.Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return Tokenizer(backend)


def samples() -> list[dict]:
    made = []
    for number in range(12):
        a, b = number % 4, (number + 1) % 4
        text = f"{NAMES[a]} is near {NAMES[b]} . {NAMES[b]} is in {NAMES[4 + b // 2]} ."
        spans, at = [], 0
        for i in (a, b, b, 4 + b // 2):
            start = text.index(NAMES[i], at)
            at = start + len(NAMES[i])
            spans.append([start, at, f"Q{i}", 1.0])
        made.append({"key": f"k{number}", "corpus": "c", "draw": (number,), "text": text, "spans": spans})
    return made


def task(tokenizer: Tokenizer, control: str | None = None) -> Task:
    spec = {
        "corpora": ["c"],
        "sequence": {
            "builder": "sentence_pair",
            "max_length": 32,
            "transforms": [
                {"transform": "kg.sentence_tree", "graph": Graph(), "max_length": 64},
                {"transform": "kg.entity_stream", "table": {f"Q{i}": i for i in range(6)}},
            ],
        },
        "objectives": [
            {"objective": "mlm", "rate": 0.3},
            {"objective": "nsp"},
            {"objective": "kg.dea"},
        ],
    }
    parsed = check(TaskSpec, spec, "test")
    return Task("wiki", parsed, seed=0, resources={"tokenizer": tokenizer, "control": control})


def root_of(made: Task, vocab_size: int) -> PretrainingModel:
    torch.manual_seed(0)
    fused = {
        "layer": "kg.aggregator",
        "streams": ["text", "entity"],
        "num_heads": [2, 2],
        "dropout": 0.0,
    }
    fused |= {"attention_dropout": 0.0}
    text = {"embedding": "token", "vocab_size": vocab_size, "hidden_size": 32, "max_positions": 64, "dropout": 0.0}
    entity = {"embedding": "kg.entity_table", "path": torch.randn(6, 8)}
    spec = NetworkSpec(
        {"text": text, "entity": entity},
        [
            {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
            {**fused, "entity_attention": False},
            {**fused, "entity_output": False},
        ],
        ["text"],
    )
    network = Network(spec)
    names = {placed.name: placed.objective for placed in made.objectives}
    return PretrainingModel(
        {"main": network},
        {name: objective.head(network) for name, objective in names.items()},
        {name: ViewKey("main", "main") for name in names},
    )


def test_losses_fall_on_a_repeated_batch(tokenizer: Tokenizer) -> None:
    made = task(tokenizer)
    micro = made.micro_batch(samples(), (0,))
    assert micro.counts["dea"] > 20
    assert micro.views["main"].streams["text"].fields["branch"].max() >= 2
    root = root_of(made, tokenizer.vocab_size)
    optimiser = torch.optim.AdamW(root.parameters(), lr=3e-3)
    history = []
    for _ in range(20):
        out = root(micro, list(micro.counts))
        losses = {name: out[name].loss / micro.counts[name] for name in out}
        optimiser.zero_grad()
        sum(losses.values()).backward()
        assert all(torch.isfinite(p.grad).all() for p in root.parameters() if p.grad is not None)
        optimiser.step()
        history.append({name: float(loss.detach()) for name, loss in losses.items()})
    for name in ("mlm", "dea"):
        assert history[-1][name] < 0.8 * history[0][name]
    assert sum(history[-1].values()) < 0.7 * sum(history[0].values())


def test_entities_hang_on_their_tokens_behind_branches(tokenizer: Tokenizer) -> None:
    batch = task(tokenizer).micro_batch(samples(), (0,)).views["main"]
    sequences = task(tokenizer).builder(samples(), task(tokenizer)._draws("builder", "build", (0,), 0.0))
    assert len(sequences) == batch.size
    entity, text = batch.streams["entity"].fields, batch.streams["text"].fields
    assert not text["branch"][entity["token"]].any()
    words = text["input_ids"][entity["token"]].tolist()
    for word, row in zip(words, entity["entity_ids"].tolist(), strict=True):
        assert WORDS[word] in ("[MASK]", "[CLS]", *WORDS[5:])
        if row == 0:
            assert WORDS[word] == "[CLS]"


@pytest.mark.parametrize("control", [None, *CONTROLS])
def test_every_control_gives_a_batch(tokenizer: Tokenizer, control: str | None) -> None:
    micro = task(tokenizer, control).micro_batch(samples(), (0,))
    branches = micro.views["main"].streams["text"].fields.get("branch", torch.zeros(1))
    assert bool(branches.any()) == (control != "no-kg")


def test_branch_tokens_are_never_masked(tokenizer: Tokenizer) -> None:
    for number in range(20):
        batch = task(tokenizer).micro_batch(samples(), (number,)).views["main"]
        text = batch.streams["text"].fields
        rows = batch.targets["mlm"]["rows"]
        assert not text["branch"][rows].any()
        assert not (text["input_ids"][text["branch"] > 0] == tokenizer.id("mask")).any()


@pytest.mark.parametrize("name", ["ernie-thu", "k-bert"])
def test_recipes_say_what_the_paper_does_not(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.paper is not None
    assert recipe.reported
    assert recipe.paper.not_stated

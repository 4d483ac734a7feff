"""The comparison of knowledge-enhanced systems has for all of them the same size, data and budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.comparison import Budget
from benchmarks.knowledge_inputs import Labelled, parts, spaced
from benchmarks.knowledge_results import tuned_alike
from benchmarks.knowledge_systems import SYSTEMS, common
from benchmarks.knowledge_tables import TASKS
from benchmarks.result_tables import markdown, spread
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe

DEFAULTS = {"dropout": 0.1, "token_types": 2, "norm": "layer"}
OWN = {"embedding", "senses", "path", "extra"}
"""What the text's embedding may have next to what BERT's has."""
NAMES = [name for name, system in SYSTEMS.items() if system.recipe]
NO_ARTICLES = {"kg-bert", "k-adapter", "k-adapter-linguistic"}


def recipe_of(name: str) -> Recipe:
    recipe = SYSTEMS[name].recipe
    assert recipe is not None
    return load_recipe(recipe, [*common(name, 2, 50, Path("corpora")), *SYSTEMS[name].overrides])


def size_of(stream: dict[str, Any]) -> dict[str, Any]:
    return {option: value for option, value in (DEFAULTS | stream).items() if option not in OWN}


@pytest.mark.parametrize("name", NAMES)
def test_a_system_is_as_deep_and_as_long_trained_as_bert(name: str) -> None:
    recipe, bert = recipe_of(name), recipe_of("bert")
    network, own = recipe.networks["main"], bert.networks["main"]
    layers = [layer for layer in network.layers if layer["layer"] != "kg.kar"]  # it stands between layers of BERT's
    assert sum(layer.get("repeat", 1) for layer in layers) == sum(layer["repeat"] for layer in own.layers) == 6
    assert size_of(network.streams["text"]) == size_of(own.streams["text"])
    assert [start.weights for start in network.init_from] == [start.weights for start in own.init_from]
    assert network.poolers == own.poolers
    assert (recipe.train, recipe.seed, recipe.tokenizer) == (bert.train, bert.seed, bert.tokenizer)
    assert recipe.schedule == "together"


@pytest.mark.parametrize("name", sorted({*NAMES} - NO_ARTICLES))
def test_a_system_reads_the_windows_that_bert_reads(name: str) -> None:
    recipe = recipe_of(name)
    task = next(task for task in recipe.tasks.values() if next(iter(task.corpora)).startswith("corpora/wiki-"))
    assert task.sequence.builder == {"builder": "document", "max_length": 64}
    assert [objective["rate"] for objective in task.objectives if objective["objective"] == "mlm"] == [0.15]
    assert ("control" in str(SYSTEMS[name].overrides)) == (recipe.control is not None)


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_a_system_is_without_knowledge_is_compared_too(name: str) -> None:
    without = SYSTEMS[name].without
    assert without == "" or SYSTEMS[without].without == ""


@pytest.mark.parametrize("name", TASKS)
def test_mentions_are_read_at_their_markers(name: str) -> None:
    reported = [*tuned_alike(Budget(10, 0.5, 1, "float32")), *TASKS[name].tuning]
    options = dict(zip(reported[::2], reported[1::2], strict=True))
    assert options["--read"] == "markers"
    assert options["--epochs"] == "0.5"


def written(path: Path, relations: list[str]) -> None:
    path.write_text("".join(json.dumps({"id": i, "relation": name}) + "\n" for i, name in enumerate(relations)))


def test_no_row_is_trained_on_and_tested_on(tmp_path: Path) -> None:
    written(tmp_path / "all.jsonl", ["a", "b", "b", "c", *["a", "b"] * 20])
    trained, tested = parts(tmp_path, Labelled("all.jsonl", "all.jsonl"), set())
    assert {row["id"] for row in trained}.isdisjoint(row["id"] for row in tested)
    assert {row["relation"] for row in tested} <= {row["relation"] for row in trained} == {"a", "b"}


def test_relations_of_entities_are_those_of_the_graph(tmp_path: Path) -> None:
    pairs = [("Q1", "Q9"), ("Q8", "Q9"), ("Q9", "Q1"), ("Q8", "Q8"), ("Q1", "Q1"), ("Q1", "Q8")]
    rows = [{"id": i, "relation": "a", "head": {"id": h}, "tail": {"id": t}} for i, (h, t) in enumerate(pairs)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trained, tested = parts(tmp_path, Labelled("all.jsonl", "all.jsonl"), {"Q1"})
    assert [row["id"] for row in trained] == [0, 4]
    assert [row["id"] for row in tested] == [2, 5]


def test_rows_are_evenly_spaced() -> None:
    rows = [{"id": i} for i in range(10)]
    assert [row["id"] for row in spaced(rows, 4)] == [0, 2, 5, 7]
    assert spaced(rows, 20) == rows


def test_a_table() -> None:
    reported = markdown(
        [["", "x"], ["bert", spread([0.5, 0.6, 0.7])], ["k-bert", spread([0.25])], ["wklm", spread([])]]
    )
    assert reported == "|  | x |\n|---|---|\n| bert | 0.600 ± 0.100 |\n| k-bert | 0.250 |\n| wklm |  |"

"""What single systems are asked, and what is made for it."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.knowledge_abilities import TRANSE, abilities, ability_tables
from benchmarks.knowledge_extras import unseen_triples
from benchmarks.knowledge_systems import SYSTEMS
from kg.graph.store import GraphStore

TRIPLES = [("Q1", "P1", "Q2"), ("Q2", "P1", "Q3")]


def graph(tmp_path: Path) -> GraphStore:
    return GraphStore.build(TRIPLES, tmp_path / "graph")


def answered(folder: Path, file: str, accuracy: float) -> None:
    folder.mkdir(parents=True)
    numbers = {"accuracy": accuracy, "f1": 0.5}
    result = {"task": "triple-classification", "numbers": numbers, "baselines": {"majority": {"f1": 0.6}}}
    (folder / file).write_text(json.dumps(result))


def test_who_was_asked_stands_above_the_baselines(tmp_path: Path) -> None:
    file = "triple-classification-described-test.json"
    for seed, accuracy in enumerate((0.5, 0.7)):
        run = tmp_path / f"runs/kepler-seed-{seed}"
        answered(run / "evaluations", file, accuracy)
        (run / "recipe.yaml").write_text("")
    answered(tmp_path / "evaluations/described.safetensors", file, 0.75)
    assert ability_tables(3, tmp_path) == {
        "True triples": [
            ["", "seeds", "accuracy", "f1"],
            [TRANSE, "1", "0.750", "0.500"],
            ["kepler", "2", "0.600 ± 0.141", "0.500 ± 0.000"],
            ["majority", "", "", "0.600"],
        ]
    }


def test_all_systems_that_predict_words_or_score_triples_are_asked() -> None:
    asked = {name for ability in abilities(Path("corpora")).values() for name in ability.asked}
    assert set(SYSTEMS) - asked == {"minilm", "k-adapter", "k-adapter-linguistic", "k-adapter-both"}


def test_facts_that_are_asked_for_are_in_no_graph_that_a_system_reads(tmp_path: Path) -> None:
    graph(tmp_path)
    held_out = tmp_path / "valid.txt"
    held_out.write_text("Q1\tP1\tQ2\nQ1\tP1\tQ3\nQ1\tP2\tQ2\nQ9\tP1\tQ2\n")
    found = unseen_triples(held_out, tmp_path / "graph", tmp_path / "unseen.tsv")
    assert found.read_text() == "Q1\tP1\tQ3\nQ1\tP2\tQ2\nQ9\tP1\tQ2\n"

"""Supersenses of hidden words, from a pretrained run to the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kg.evaluation.task_options import SupersenseScoring
from kg.evaluation.task_panels import meant
from kg.evaluation.tasks.supersenses import Supersenses
from kg.lexicons.supersense_table import SupersenseTable as Table
from kg.lexicons.supersense_table import save_supersenses
from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, prepare, pretrain_on
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.recipe.reading import load_recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.report.run import load_run
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain

COLOURS, THINGS, STATES = ["red", "green", "blue"], ["house", "boat"], ["old", "new", "lost"]
CLASSES = ["noun.artifact", "noun.attribute", "verb.stative"]


def senses_for(folder: Path) -> str:
    """Colours are attributes, things artifacts, states both of the others."""
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    allowed = np.zeros((tokenizer.vocab_size, 3), np.bool_)
    for words, senses in ((COLOURS, [1]), (THINGS, [0]), (STATES, [1, 2])):
        for word in words:
            (token,) = tokenizer.encode(word).ids.tolist()
            allowed[token, senses] = True
    save_supersenses(folder / "senses.json", Table(CLASSES, allowed), tokenizer.identity, {})
    return str(folder / "senses.json")


def run_on(folder: Path, steps: int, name: str) -> Path:
    senses = senses_for(folder)
    quiet = {"dropout": 0.0, "attention_dropout": 0.0}
    text = {"embedding": "kg.sense_token", "senses": senses, "hidden_size": 32, "max_positions": 40, "dropout": 0.0}
    mlm = {"objective": "mlm", "rate": 0.3}
    tree: dict[str, Any] = {
        "tokenizer": str(folder / "tokenizer.json"),
        "model": {"streams": {"text": text}, "layers": [{"layer": "self", "stream": "text", "num_heads": 2, **quiet}]},
        "tasks": {
            "texts": {
                "corpora": [str(folder / "texts")],
                "sequence": {"builder": "document", "max_length": 20},
                "objectives": [{"objective": "kg.supersense", "senses": senses}, mlm],
            }
        },
        "train": {
            "max_steps": steps,
            "global_batch_size": 18,
            "micro_batch_size": 18,
            "lr": 1e-2,
            "num_workers": 0,
            "lr_schedule": "constant",
        },
    }
    return pretrain(recipe_from_dict(tree), folder / name)


def contract_world(folder: Path) -> World:
    texts = make_texts(folder)
    return World(run_on(texts, 1, "run"), str(texts / "texts"), pretrain_on(texts), {})


CASE = EvaluationCase(world=contract_world)


def test_what_pretraining_taught_is_measured_next_to_the_commonest(tmp_path: Path) -> None:
    texts = make_texts(tmp_path)
    run = run_on(texts, 60, "run")
    found = evaluate(Supersenses(), SupersenseScoring(run=run, corpus=str(texts / "texts")))
    assert found.numbers["single_accuracy"] > 0.9
    assert found.counts["words"] > found.counts["of a single supersense"] > 0
    ((name, always),) = found.baselines.items()
    assert name == "always noun.attribute"
    assert always["allowed_accuracy"] < found.numbers["allowed_accuracy"]
    example = found.examples[0]
    assert len(example["predicted"]) == len(example["allowed"])
    assert "noun" in str(meant(load_run(run)))
    again = evaluate(Supersenses(), SupersenseScoring(run=run, corpus=str(texts / "texts")))
    assert again.numbers == found.numbers


def test_texts_without_such_words_are_reported(tmp_path: Path) -> None:
    texts = make_texts(tmp_path)
    run = run_on(texts, 1, "run")
    other = prepare(tmp_path, "other", [{"text": "the is . the is"}])
    with pytest.raises(WorkbenchError, match="no texts with words that have a supersense"):
        evaluate(Supersenses(), SupersenseScoring(run=run, corpus=other))


def test_a_run_without_them_is_sent_to_a_recipe_that_teaches_them(tmp_path: Path) -> None:
    """There is no fine-tuning for it."""
    texts = make_texts(tmp_path)
    with pytest.raises(WorkbenchError, match=r"pretrain one with kg\.supersense, such as sensebert$"):
        evaluate(Supersenses(), SupersenseScoring(run=pretrain_on(texts), corpus=str(texts / "texts")))
    objectives = [o["objective"] for task in load_recipe(Supersenses.recipe).tasks.values() for o in task.objectives]
    assert "kg.supersense" in objectives

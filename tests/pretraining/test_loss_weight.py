"""Weights of losses over a run: their shapes, their place in the gradient and in the log."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.evaluation.conftest import make_texts, network, prepare, recipe_tree
from workbench.core.errors import WorkbenchError
from workbench.core.options.values import check
from workbench.pretraining.loss_weight import LossWeight
from workbench.pretraining.task import Placement
from workbench.pretraining.task_corpora import as_corpora_say
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume


def test_a_weight_goes_from_its_first_to_its_last_value() -> None:
    exponential = LossWeight(0.2, 0.01, "exponential")
    assert exponential.at(0.5) == pytest.approx(0.2 * (0.01 / 0.2) ** 0.5)
    linear = LossWeight(0.0, 2.0, since=0.25, until=0.75)
    assert [linear.at(at) for at in (0, 0.25, 0.5, 0.75, 1)] == [0, 0, 1, 2, 2]
    assert LossWeight(1.0, 0.0, "cosine").at(0.25) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


def test_a_recipe_writes_it_as_a_mapping_and_learns_what_is_wrong() -> None:
    read = check(Placement, {"weight": {"from": 0.2, "to": 0.01, "shape": "exponential"}}, "here")
    assert read.weight == LossWeight(0.2, 0.01, "exponential")
    assert check(Placement, {"weight": 2}, "here").weight == 2
    for wrong, words in (
        ({"from": 0.2}, "the key 'to' is missing"),
        ({"from": 0, "to": 1, "shape": "exponential"}, "numbers above 0"),
        ({"from": 0, "to": 1, "since": 0.5, "until": 0.5}, "since below until"),
        ("half", "allowed: a number from 0, at most 1e.06, or a mapping with start, to"),
        (-1, "allowed: a number from 0"),
    ):
        with pytest.raises(WorkbenchError, match=words):
            check(Placement, {"weight": wrong}, "here")


def test_a_group_begins_in_an_epoch_of_the_only_task(tmp_path: Path) -> None:
    rows = [{"text": f"number {n}", "labels": {"hour": "ab"[n % 2]}} for n in range(16)]
    hour = {"objective": "classify", "classes": ["a", "b"], "label": "hour"}
    tree = recipe_tree(make_texts(tmp_path), {**network(8), "poolers": ["text"]}, [hour])
    tree["tasks"]["text"] |= {
        "corpora": [prepare(tmp_path, "labelled", rows)],
        "sequence": {"builder": "sentence_pair", "max_length": 24, "split": False},
    }
    tree["train"]["groups"] = [{"match": "networks.main.embeddings", "start_epoch": 1.5}]
    settled = as_corpora_say(recipe_from_dict(tree)).train.groups[0]
    assert (settled.start_step, settled.start_epoch) == (3, None)  # of 16 records in batches of 8
    tree["tasks"]["text"]["sequence"] = {"builder": "document", "max_length": 24}
    with pytest.raises(WorkbenchError, match="windows of texts; give start_step"):
        as_corpora_say(recipe_from_dict(tree))


def test_it_weighs_the_loss_is_logged_and_resumes_exactly(tmp_path: Path) -> None:
    texts = make_texts(tmp_path)
    weight = {"from": 1.0, "to": 0.0, "until": 0.5}
    tree = recipe_tree(texts, {**network(8), "poolers": ["text"]}, [{"objective": "mlm"}])
    tree["tasks"]["text"]["objectives"] += [{"objective": "mlm", "name": "again", "weight": weight, "view": "again"}]
    tree["train"] |= {"max_steps": 4, "log_every": 1}
    run = pretrain(recipe_from_dict(tree), tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["again/weight"] for line in lines] == [1.0, 0.5, 0.0, 0.0]
    assert all("mlm/weight" not in line for line in lines)
    assert verify_resume(recipe_from_dict(tree), tmp_path / "compared").equal

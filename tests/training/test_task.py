"""What a task does to samples: views, names, keys of generators, clear errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.core.errors import WorkbenchError
from workbench.pretraining.assembly import make_model
from workbench.pretraining.task import Task, build_tasks, labels
from workbench.recipe.reading import load_recipe
from workbench.text.tokenizer import Tokenizer

SAMPLES = [
    {"key": "a", "text": "the old river runs past a small town", "draw": (0, 0, 0)},
    {"key": "b", "text": "people buy bread", "draw": (0, 0, 1)},
]


def tasks_of(path: Path) -> dict[str, Task]:
    recipe = load_recipe(str(path), trust=True)
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    return build_tasks(recipe.tasks, seed=recipe.seed, resources={"tokenizer": tokenizer})


def test_views_are_corrupted_apart(make_recipe: Any) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"] = [
            {"objective": "mlm", "rate": 0.9},
            {"objective": "toy_components:Contrast", "view": "clean"},
        ]

    micro = tasks_of(make_recipe(change))["text"].micro_batch(SAMPLES, (0, 0, 0))
    assert set(micro.views) == {"main", "clean"}
    clean, main = (micro.views[view].streams["text"].fields["input_ids"] for view in ("clean", "main"))
    rows, original = micro.views["main"].targets["mlm"]["rows"], micro.views["main"].targets["mlm"]["labels"]
    assert (clean != main).any()
    assert (clean[rows] == original).all()
    assert micro.counts == {"mlm": float(len(rows)), "contrast": 2.0}


def test_a_micro_batch_depends_on_keys_alone(make_recipe: Any) -> None:
    path = make_recipe()
    one, two = (tasks_of(path)["text"].micro_batch(SAMPLES, (0, 0, 0)) for _ in range(2))
    other = tasks_of(path)["text"].micro_batch([{**s, "draw": (0, 1, i)} for i, s in enumerate(SAMPLES)], (0, 0, 0))
    ids = [m.views["main"].streams["text"].fields["input_ids"].numpy() for m in (one, two, other)]
    assert np.array_equal(ids[0], ids[1])
    assert not np.array_equal(ids[0], ids[2])


def test_labels_name_the_task_only_where_names_repeat(make_recipe: Any) -> None:
    def change(tree: dict[str, Any]) -> None:
        second = {**tree["tasks"]["text"], "objectives": [{"objective": "mlm"}, {"objective": "clm"}]}
        tree["tasks"]["more"] = second

    found = labels(tasks_of(make_recipe(change)))
    assert found == {("text", "mlm"): "text.mlm", ("more", "mlm"): "more.mlm", ("more", "clm"): "clm"}


def test_tasks_that_share_a_name_share_a_head_of_one_kind(make_recipe: Any) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["more"] = {**tree["tasks"]["text"], "objectives": [{"objective": "clm", "name": "mlm"}]}

    path = make_recipe(change)
    with pytest.raises(WorkbenchError, match="Give this one another `name`"):
        make_model(load_recipe(str(path), trust=True), tasks_of(path), None)


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ([{"objective": "mlm"}, {"objective": "mlm"}], "several objectives are named 'mlm'"),
        ([{"objective": "mlm", "name": "values"}], "cannot be named 'values'; give it another `name`"),
        ([{"objective": "mlm", "name": "layers"}], "cannot be named 'layers'; give it another `name`"),
        ([{"objective": "mlm", "weight": "much"}], "weight = 'much'"),
        ([{"objective": "mlm", "view": "a.b"}], "view = 'a.b'"),
        ([{"objective": "mln"}], "Did you mean 'mlm'"),
        ([{"objective": "mlm", "rat": 1}], "Did you mean 'rate'"),
        ([], r"objectives = \[\]; allowed: a list of at least 1"),
    ],
)
def test_errors_say_where_and_what(make_recipe: Any, objectives: list[Any], message: str) -> None:
    path = make_recipe(lambda tree: tree["tasks"]["text"].update(objectives=objectives))
    with pytest.raises(WorkbenchError, match=message):
        tasks_of(path)

"""One optimiser step against a plain loop over the whole batch, however it is cut into micro-batches."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.core.processes.distributed import World
from workbench.optimization.factory import make_optimizer
from workbench.pretraining.assembly import make_model
from workbench.pretraining.task import Task, build_tasks
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.text.tokenizer import Tokenizer
from workbench.training import losses as losses
from workbench.training.losses import loss_of
from workbench.training.parallel import Work
from workbench.training.step import StepResult, Updater

WORDS = ["old", "river", "small", "town", "bread"]


def make(recipe: Recipe) -> tuple[Any, dict[str, Task]]:
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    tasks = build_tasks(recipe.tasks, seed=recipe.seed, resources={"tokenizer": tokenizer})
    return make_model(recipe, tasks, tokenizer), tasks


def samples(count: int) -> list[dict[str, Any]]:
    return [
        {"key": str(i), "text": " ".join(WORDS[(i * j) % 5] for j in range(1, 3 + 5 * i)), "draw": (0, 0, i)}
        for i in range(count)
    ]


def without_dropout(tree: dict[str, Any]) -> None:
    tree["model"]["init_range"] = 0.3  # weights so small that all texts are alike would teach the contrast nothing
    tree["model"]["streams"]["text"]["dropout"] = 0.0
    tree["model"]["layers"][0].update(dropout=0.0, attention_dropout=0.0)
    tree["tasks"]["text"]["objectives"] = [
        {"objective": "mlm", "weight": 0.5},
        {"objective": "toy_components:Contrast", "weight": 2.0},
    ]


def gradients(recipe: Recipe, pieces: list[int]) -> tuple[dict[str, torch.Tensor], float]:
    """Gradients (clipped) of one step over six samples cut into micro-batches of these sizes."""
    root, tasks = make(recipe)
    result = stepped(root, tasks, recipe, pieces)
    return {name: p.grad for name, p in root.named_parameters() if p.grad is not None}, result.grad_norm


def stepped(root: Any, tasks: dict[str, Task], recipe: Recipe, pieces: list[int]) -> StepResult:
    spec = replace(recipe.train, global_batch_size=len(pieces), micro_batch_size=1)
    updater = Updater(root, make_optimizer(root, spec), tasks, spec, World(), seed=0, weights={"text": 1.0})
    everything, work, start = samples(sum(pieces)), [], 0
    for lane, size in enumerate(pieces):
        micro = tasks["text"].micro_batch(everything[start : start + size], (0, 0, lane)) if size else None
        work.append(Work("text", lane, micro))
        start += size
    return updater.run(0, work)


@pytest.mark.parametrize("pieces", [[6], [3, 3], [1, 5], [2, 0, 1, 3]])
def test_accumulation_changes_nothing(make_recipe: Any, pieces: list[int]) -> None:
    recipe = load_recipe(str(make_recipe(without_dropout)), trust=True)
    root, tasks = make(recipe)
    micro = tasks["text"].micro_batch(samples(6), (0, 0, 0))
    outputs = root(micro, ["mlm", "contrast"])
    losses = {name: output.loss / micro.counts[name] for name, output in outputs.items()}
    (0.5 * losses["mlm"] + 2.0 * losses["contrast"]).backward()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in root.parameters() if p.grad is not None))
    found, found_norm = gradients(recipe, pieces)
    assert norm > recipe.train.clip_norm > 0  # type: ignore[operator]
    assert found_norm == pytest.approx(norm, rel=1e-5)
    assert "heads.contrast.scale" in found
    for name, parameter in root.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad / norm, atol=5e-5, rtol=1e-3)


def test_a_micro_batch_compares_its_own_sequences_with_all(make_recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[slice, int]] = []

    def noted(head: Any, embedded: Any, own: slice) -> Any:
        seen.append((own, len(embedded["left"])))
        return loss_of(head, embedded, own)

    monkeypatch.setattr(losses, "loss_of", noted)
    gradients(load_recipe(str(make_recipe(without_dropout)), trust=True), [2, 0, 1, 3])
    assert seen == [(slice(0, 2), 7), (slice(2, 3), 7), (slice(3, 7), 7)]  # the longest text makes two sequences


def test_a_step_without_labels_changes_no_objective(make_recipe: Any) -> None:
    recipe = load_recipe(str(make_recipe()))
    found, norm = gradients(recipe, [0, 0])
    assert norm == 0.0
    assert not found  # a zero gradient would move a parameter: by its moments, and by weight decay


def test_both_passes_of_a_global_batch_objective_draw_the_same_dropout(make_recipe: Any, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"] = [{"objective": "toy_components:Contrast"}]

    recipe = load_recipe(str(make_recipe(change)), trust=True)
    direct, _ = gradients(recipe, [6])
    twice, _ = gradients(recipe, [6, 0])
    for name, gradient in direct.items():
        torch.testing.assert_close(twice[name], gradient, atol=1e-6, rtol=1e-4)


def test_a_contrast_of_the_micro_batch_alone_is_trained(make_recipe: Any) -> None:
    def nearby(tree: dict[str, Any]) -> None:
        without_dropout(tree)
        tree["tasks"]["text"]["objectives"] = [{"objective": "toy_components:Nearby"}]

    recipe = load_recipe(str(make_recipe(nearby)), trust=True)
    root, tasks = make(recipe)
    micros = [tasks["text"].micro_batch(samples(6)[part], (0, 0, 0)) for part in (slice(0, 2), slice(2, 6))]
    wanted = sum(root(micro, ["nearby"])["nearby"].loss.item() for micro in micros)
    loss, count = stepped(root, tasks, recipe, [2, 4]).losses["nearby"]
    assert loss == pytest.approx(wanted, rel=1e-5)
    assert count == 7


@pytest.mark.parametrize("pieces", [[3, 3], [1, 5], [2, 0, 1, 3]])
@pytest.mark.parametrize(
    "objective",
    [
        {"objective": "toy_components:Queueing", "name": "queueing"},
        {"objective": "toy_components:Nearby", "name": "queueing"},
        {"objective": "toy_components:Nearby", "name": "queueing", "global_batch": True},
    ],
    ids=["additive", "micro-batch", "global-batch"],
)
def test_what_a_head_keeps_is_that_of_the_whole_step(
    make_recipe: Any, objective: dict[str, Any], pieces: list[int]
) -> None:
    def queueing(tree: dict[str, Any]) -> None:
        without_dropout(tree)
        tree["tasks"]["text"]["objectives"] = [objective]

    recipe = load_recipe(str(make_recipe(queueing)), trust=True)
    queues = []
    for sizes in ([6], pieces):
        root, tasks = make(recipe)
        stepped(root, tasks, recipe, sizes)
        queues.append(root.heads["queueing"].queue)
    assert queues[0].count_nonzero() > 1
    torch.testing.assert_close(queues[1], queues[0])

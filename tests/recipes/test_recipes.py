"""Every recipe that ships: it resolves, it says where it comes from, and made small it learns one repeated batch.

No head and no layer asks the device for a number: a step runs on torch's `meta` device, where there are none. There
`item`, `tolist`, `nonzero` and selections by a mask raise, and whatever goes by values on a CPU alone is passed over,
as on a GPU. Copies that wait, and kernels of a GPU, are not seen here.

The recipe is shrunk, not rewritten: sizes and paths change wherever they are stated, components and their options stay.
A recipe whose task the tables here do not know fails; add what it needs to them.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from rich.text import Text

from tests.recipes.shipped_recipes import marked, of_each_part
from tests.recipes.shipped_recipes import recipe as shipped_recipe
from workbench.cli.batch_view import sequence_view
from workbench.components.building import find, options_of
from workbench.pretraining.assembly import make_model
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.task import Task, build_tasks
from workbench.recipe.reading import recipe_names
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.batch import MicroBatch
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import first_batches

STEPS = 20
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "feature_size": 12,
    "num_classes": 4,
    "patch": 8,
    "grid": 4,
    "size": 32,
    "shorter": 32,
    "longer": 48,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "repeat": 1,
    "num_heads": 2,
    "kv_heads": 1,
    "cells": 48,
    "filters": [8, 8],
    "buckets": 100,
}
MAP = {"size": 64, "grid": 2}
"""The image that a backbone inside the model has so large a map of."""
OF_DATA = ("feature_size", "num_classes")
"""Those of them that the small data decide."""
CORPORA = {
    "document": "text",
    "packed": "plain",
    "sentence_pair": "text",
    "translation_pair": "text",
    "text_pair": "pairs",
    "text_to_text": "text",
    "choices": "pairs",
    "mention": "text",
    "tagged_text": "text",
    "kg.marked_pair": "text",
    "dialogue": "text",
    "conversation": "text",
    "image_caption": "images",
    "caption_pair": "images",
    "question_image": "images",
    "vision.video_caption": "videos",
    "spoken_words": "speech",
    "kg.graph_triple": "triples",
    "kg.described_triple": "triples",
}
"""Which of the small corpora feeds a sequence builder."""
COSTLY = ("speechbert", "mt5")
"""Recipes whose steps take several times as long as those of others."""
OWN = ("joint-entity", "llama-chat")
"""Recipes of no paper."""


def shrunk(value: Any, world: Any, sizes: dict[str, Any] = SIZES) -> Any:
    """The same tree with small sizes and the small data's paths, wherever it states a size or a path."""
    if isinstance(value, list):
        return [shrunk(inner, world, sizes) for inner in value]
    if not isinstance(value, dict):
        return value
    small = {key: shrunk(inner, world, sizes) for key, inner in value.items()}
    small |= {
        key: [size] * len(small[key]) if key == "num_heads" and isinstance(small[key], list) else size
        for key, size in sizes.items()
        if key in small
    }
    for key, path in (
        ("graph", world.graph),
        ("table", world.vectors),
        ("path", world.vectors),
        ("similar", world.similar),
        ("counts", world.counts),
        ("senses", world.senses),
        ("vectors", world.words),
        ("vocabulary", world.entities),
        ("answers", world.answers),
        ("names", world.objects),
    ):
        if isinstance(small.get(key), str):  # a task may have such a name too
            small[key] = str(path)
    if "adapter" in small and "after" in small:
        small["after"] = [0, 1]
    if "image_processor" in small and "backbone" in small:
        small["backbone"] = "made-up"
    if "image_processor" in small and "sample" in small:
        small |= {"sample": 3, **MAP}
    if small.get("objective") == "classify":
        small |= {"label": "relation", "classes": ["P206", "P361"]}
    if small.get("objective") == "regression":
        small["label"] = "score"
    if small.get("builder") == "text_to_text":
        small |= {"source": "en", "target": "fr"}
    if "clustering" in small:
        small["clustering"] = "made-up"
    return _part(small)


def on_small_data(recipe: Recipe, world: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """What a recipe says, reading the small corpora."""
    plain: dict[str, Any] = shrunk(dataclasses.asdict(recipe), world, sizes)
    for task, spec in plain["tasks"].items():
        builder = spec["sequence"]["builder"]["builder"]
        if builder not in CORPORA:
            pytest.fail(f"recipe {recipe.name}, task {task}: no small corpus is known for the builder {builder!r}")
        counted = any(each["objective"] == "cooccurrence" for each in spec["objectives"])
        spec["corpora"] = {str(world.cells if counted else getattr(world, _corpus(spec["sequence"]))): 1.0}
        if builder == "image_caption":
            _of_images(spec)
    plain["tokenizer"] = str(world.tokenizer)
    return plain


def _of_images(spec: dict[str, Any]) -> None:
    """The small images have one medium each, and classes of their own."""
    spec["sequence"]["builder"].pop("media", None)
    for objective in spec["objectives"]:
        if objective["objective"] == "classify":
            objective |= {"label": "label", "classes": ["one", "two"]}


def _part(spec: dict[str, Any]) -> dict[str, Any]:
    """What depends on the component: dropout is on by default, and an entity table has its vectors' size."""
    kind = next((kind for kind in ("layer", "embedding") if kind in spec), None)
    if kind is None:
        return spec
    known = options_of(find(kind, spec[kind])).names
    small = spec | {name: 0.0 for name in ("dropout", "attention_dropout") if name in known}
    if spec[kind] in ("vision.roi_feature", "vision.grid"):
        small |= {"backbone": "test_resnet", "weights": None}
    if spec[kind] == "vision.grid":
        small |= MAP
    return small | ({"hidden_size": 16} if spec[kind] in ("kg.entity_table", "kg.word_or_entity") else {})


def small_recipe(name: str, world: Any) -> Recipe:
    plain = on_small_data(shipped_recipe(name), world, SIZES)
    plain["train"] |= {"global_batch_size": 8, "micro_batch_size": 8, "num_workers": 0, "lr_schedule": "linear"}
    return recipe_from_dict(plain, name)


def _corpus(sequence: dict[str, Any]) -> str:
    """Which of the small corpora feeds the sequences: what they are built from next to the builder may need its own."""
    if "kg.sentiment" in [step if isinstance(step, str) else step["transform"] for step in sequence["transforms"]]:
        return "reviews"
    if sequence["builder"].get("image_processor"):
        return "images"
    if sequence["builder"].get("passages") == "twice":  # the pairs are of single words, without parts
        return "text"
    return CORPORA[sequence["builder"]["builder"]] if sequence["builder"].get("split", True) else "pairs"


def small_root(recipe: Recipe) -> tuple[PretrainingModel, dict[str, Any]]:
    tokenizer, _, batches = first_batches(recipe)
    assert tokenizer is not None
    resources = {"tokenizer": tokenizer, "vocab_size": tokenizer.vocab_size, "control": recipe.control}
    return make_model(recipe, build_tasks(recipe.tasks, seed=recipe.seed, resources=resources), tokenizer), batches


@dataclass(frozen=True)
class Built:
    """A recipe in its small size: its model, its tasks, and the first micro-batch of each."""

    root: PretrainingModel
    tokenizer: Tokenizer
    tasks: dict[str, Task]
    batches: dict[str, MicroBatch]


@pytest.fixture(scope="module")
def build(world: Any) -> Callable[[str], Built]:
    """Builds a recipe for the first of the tests that ask for it; none of them changes what is built."""

    @cache
    def make(name: str) -> Built:
        recipe = small_recipe(name, world)
        tokenizer, tasks, batches = first_batches(recipe)
        assert tokenizer is not None
        return Built(make_model(recipe, tasks, tokenizer), tokenizer, tasks, batches)

    return make


@pytest.fixture
def built(name: str, build: Callable[[str], Built]) -> Built:
    return build(name)


def losses_of(root: PretrainingModel, batches: dict[str, MicroBatch]) -> dict[str, torch.Tensor]:
    return {
        f"{task}/{objective}": output.loss / max(micro.counts[objective], 1)
        for task, micro in batches.items()
        for objective, output in root(micro, list(micro.counts)).items()
        if objective not in root.fixed  # a teacher learns nothing
    }


@pytest.mark.parametrize("name", recipe_names())
def test_a_step_has_labels_finite_losses_and_gradients(name: str, built: Built) -> None:
    root = copy.deepcopy(built.root)
    losses = losses_of(root, built.batches)
    torch.stack([*losses.values()]).sum().backward()
    assert all(count > 0 for micro in built.batches.values() for count in micro.counts.values())
    assert all(loss.isfinite() for loss in losses.values()), losses
    gradients = [weight.grad for weight in root.parameters() if weight.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", marked(recipe_names(), {*of_each_part(recipe_names())} - {*COSTLY}))
def test_the_loss_falls_within_20_steps_of_one_repeated_batch(name: str, built: Built) -> None:
    root = copy.deepcopy(built.root)
    optimizer = torch.optim.AdamW(root.parameters(), 5e-3)
    seen: list[dict[str, float]] = []
    for _ in range(STEPS + 1):
        losses = losses_of(root, built.batches)
        found = {label: loss.item() for label, loss in losses.items()}
        seen.append({"all": sum(found.values())} if root.fixed else found)  # a fresh teacher contradicts the labels
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()
    for label, first in seen[0].items():
        last = min(each[label] for each in seen[-5:])  # at this rate a single step may jump
        assert last < first, f"{label}: {first} -> {last}"


@pytest.mark.parametrize("name", recipe_names())
def test_show_prints_tokens_where_tokens_are_predicted_and_numbers_elsewhere(name: str, built: Built) -> None:
    for task, micro in built.batches.items():
        objectives = {placed.name: placed.objective for placed in built.tasks[task].objectives}
        for batch in micro.views.values():
            reported = Text("\n").join(
                p for i in range(batch.size) for p in sequence_view(batch, i, built.tokenizer, objectives).renderables
            )
            styles = [str(span.style) for span in reported.spans]
            hidden = {
                (batch.links[of]["rows"], row)
                for of, targets in batch.targets.items()
                if objectives[of].predicts == "tokens"
                for row in targets["rows"].tolist()
            }
            assert styles.count("bold red") == len(hidden)
            for of, targets in batch.targets.items():
                if "labels" in targets and objectives[of].predicts == "numbers":
                    assert f"{of} label" in reported.plain


def test_every_recipe_says_what_it_is() -> None:
    silent = set()
    for name in recipe_names():
        recipe = shipped_recipe(name)
        said = {
            "name": recipe.name == name,
            "kind": recipe.kind in ("text", "knowledge", "vision-language"),
            "description": 0 < len(recipe.description) <= 140,
            "train.lr": recipe.train.lr > 0,
            "paper": (recipe.paper is None) == (name in OWN),
            "paper.url": recipe.paper is None or recipe.paper.url.startswith("https://"),
        }
        silent |= {f"{name}: {key}" for key, right in said.items() if not right}
    assert silent == set()


WAITS = {
    "albef": "vision.hard_itm draws texts on the device, and attention has to know on the host how long these are",
    "12-in-1": "the same of vision.ranking",
    "blip": "the same",
    "blip-2": "the same",
}
"""Recipes with a wait that stays, and why."""


@pytest.mark.parametrize("name", recipe_names())
def test_a_step_asks_the_device_for_nothing(name: str, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.autocast` knows no meta device; what heads switch off is off."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    root = copy.deepcopy(built.root).train().to("meta")
    waits = pytest.raises((RuntimeError, NotImplementedError), match="meta") if name in WAITS else nullcontext()
    with waits:
        for micro in built.batches.values():
            outputs = root(micro.to("meta"), list(micro.counts))
            torch.stack([output.loss for output in outputs.values()]).sum().backward()

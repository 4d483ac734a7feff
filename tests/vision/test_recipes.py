"""The vision-language recipes, made small: they build, run from samples to losses, and learn one repeated step."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from vision.interop import volta_sublayers
from workbench.core.errors import WorkbenchError
from workbench.interop.family import FamilyConfig
from workbench.pretraining.assembly import make_model
from workbench.pretraining.forward import read
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import GlobalBatchHead
from workbench.pretraining.task import Task, build_tasks
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.batch import MicroBatch
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer, train_tokenizer

RECIPES = ("clip", "lxmert", "uniter")
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_heads": 2,
    "repeat": 1,
    "feature_size": 12,
    "num_classes": 4,
    "grid": 2,
    "patch": 8,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


@pytest.fixture
def samples(samples: list[Sample]) -> list[Sample]:
    """Those of all vision tests, with a question each."""
    asked = [{"question_id": i, "question": f"caption {i} of a dog", "answers": ["yes"]} for i in range(len(samples))]
    return [{**sample, "questions": [question]} for sample, question in zip(samples, asked, strict=True)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(["caption number 0 1 2 3 4 5 6 7 of a dog in the snow"] * 3, "wordpiece", 60))


def shrunk(tree: Any) -> Any:
    """The same recipe with small sizes wherever it states a size, and no dropout."""
    if isinstance(tree, list):
        return [shrunk(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    small = {key: SMALL[key] if key in SMALL else shrunk(value) for key, value in tree.items()}
    if "layer" in small and small["layer"] in ("self", "joint", "co"):
        small |= {"dropout": 0.0, "attention_dropout": 0.0}
    if "embedding" in small:
        small["dropout"] = 0.0
    if "patch" in small and "size" in small:
        small["size"] = 16
    if "backbone" in small and "image_processor" in small:
        small["backbone"] = "made-up"
    if "answers" in small:
        small["answers"] = ["yes", "no"]
    return small


def tiny(name: str, tokenizer: Tokenizer) -> tuple[Recipe, dict[str, Task], PretrainingModel]:
    return built(shrunk(dataclasses.asdict(load_recipe(name))), tokenizer)


def built(tree: dict[str, Any], tokenizer: Tokenizer) -> tuple[Recipe, dict[str, Task], PretrainingModel]:
    recipe = recipe_from_dict(tree)
    resources = {"tokenizer": tokenizer, "vocab_size": tokenizer.vocab_size, "seed": 0, "control": None}
    tasks = build_tasks(recipe.tasks, seed=0, resources=resources)
    return recipe, tasks, make_model(recipe, tasks, tokenizer)


def losses(root: PretrainingModel, tasks: dict[str, Task], batches: dict[str, MicroBatch]) -> dict[str, torch.Tensor]:
    found = {}
    for name, task in tasks.items():
        outputs = root(batches[name], [placed.name for placed in task.objectives])
        found |= {n: output.loss / max(batches[name].counts[n], 1) for n, output in outputs.items()}
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_the_loss_falls_on_a_repeated_step(name: str, samples: list[Sample], tokenizer: Tokenizer) -> None:
    _, tasks, root = tiny(name, tokenizer)
    batches = {n: task.micro_batch(samples, (0, 0)) for n, task in tasks.items()}
    optimizer = torch.optim.AdamW(root.parameters(), 1e-3)
    seen: list[dict[str, float]] = []
    for _ in range(20):
        found = losses(root, tasks, batches)
        optimizer.zero_grad()
        torch.stack(list(found.values())).sum().backward()
        optimizer.step()
        seen.append({n: loss.item() for n, loss in found.items()})
    for objective, first in seen[0].items():
        assert seen[-1][objective] < first, objective


@pytest.mark.parametrize(
    ("option", "message"), [("grid", "grid = 2, .* has grid = 4"), ("patch", "patch = 8, .* has patch = 4")]
)
def test_patches_of_another_grid_than_the_positions_are_refused(
    option: str, message: str, tokenizer: Tokenizer
) -> None:
    """Cells of 8 x 8 would share the positions of 4 x 4 unevenly, without any other error."""
    tree = shrunk(dataclasses.asdict(load_recipe("clip")))
    tree["model"]["streams"]["image"][option] = 4
    with pytest.raises(WorkbenchError, match=f"tasks.pairs.sequence.image_processor: {message}"):
        built(tree, tokenizer)


@pytest.mark.parametrize("name", [*RECIPES, "visualbert", "vilbert", "vl-bert", "unicoder-vl"])
def test_it_names_its_paper_and_what_that_leaves_open(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.kind == "vision-language"
    assert recipe.paper is not None
    assert recipe.paper.url.startswith("https://arxiv.org/abs/")
    assert recipe.reported
    assert recipe.paper.not_stated


def test_uniter_masks_words_or_regions_never_both(samples: list[Sample], tokenizer: Tokenizer) -> None:
    _, tasks, _ = tiny("uniter", tokenizer)
    for name, task in tasks.items():
        batch = task.micro_batch(samples, (0, 0)).views["main"]
        masked_words = bool((batch.streams["text"].fields["input_ids"] == tokenizer.id("mask")).any())
        masked_regions = "masked" in batch.streams["image"].fields
        assert (masked_words, masked_regions) == (name == "words", name in ("regions", "classes"))


def test_vilbert_connects_its_encoders_where_the_release_does() -> None:
    """The sublayers of VOLTA's `vilbert_base`: 6 of 12 text layers, then a connection before each of the others."""
    later = range(12, 36, 4)
    directions = {
        "tt": [*range(0, 12, 2), *(n + 2 for n in later)],
        "tv": [*later],
        "vt": [*later],
        "vv": [n + 2 for n in later],
    }
    wanted = volta_sublayers.read(
        FamilyConfig({**{f"{d}_attn_sublayers": numbers for d, numbers in directions.items()}, "shared_sublayers": []})
    )
    found: list[str] = []
    for layer in load_recipe("vilbert").networks["main"].layers:
        group = layer.get("group", [layer])
        found += ["co" if "streams" in one else str(one["stream"]) for one in group] * layer["repeat"]
    assert found == [sublayer.kind for sublayer in wanted]


def test_vl_bert_reads_texts_without_images(samples: list[Sample], tokenizer: Tokenizer) -> None:
    """Their words have a learned visual feature, shown from the second step on, and share the stack with captions'."""
    _, tasks, root = tiny("vl-bert", tokenizer)
    texts = [{"key": str(i), "draw": (0, i), "text": "a dog in the snow"} for i in range(4)]
    batch = tasks["texts"].micro_batch(texts, (0, 0))
    assert batch.views["main"].streams.keys() == {"text"}
    first = root.network().layers[0]
    root(batch, ["mlm_alone"])["mlm_alone"].loss.backward()
    assert first.alone.grad.abs().sum() == 0
    assert first.norm_text.weight.grad.abs().sum() > 0
    with torch.no_grad():
        first.norm_text.weight -= first.norm_text.weight.grad
    root(batch, ["mlm_alone"])["mlm_alone"].loss.backward()
    assert first.alone.grad.abs().sum() > 0
    assert first.position is root.network().embeddings["text"].position


def test_lxmert_shares_one_cross_attention_per_layer(tokenizer: Tokenizer) -> None:
    _, _, root = tiny("lxmert", tokenizer)
    co = root.network().layers[2]
    assert co.attention["text"] is co.attention["image"]


def test_lxmert_answers_questions_in_the_second_half(samples: list[Sample], tokenizer: Tokenizer) -> None:
    """Only of pairs that are matched; all other tasks continue, and share their heads."""
    recipe, tasks, root = tiny("lxmert", tokenizer)
    half = recipe.train.max_steps // 2
    assert (recipe.tasks["questions"].end_step, recipe.tasks["answered"].start_step) == (half, half)
    without, with_answers = ([placed.name for placed in tasks[name].objectives] for name in ("questions", "answered"))
    assert with_answers == [*without, "answers"]
    assert without == [placed.name for placed in tasks["pairs"].objectives]
    assert sum(name == "mlm" for name in root.heads) == 1
    targets = tasks["answered"].micro_batch(samples, (0, 0)).views["main"].targets
    matched = targets["itm"]["labels"] == 1
    assert 0 < int(matched.sum()) < len(samples)
    assert (targets["answers"]["labels"] >= 0).tolist() == matched.tolist()


def test_clip_reads_text_from_the_left(samples: list[Sample], tokenizer: Tokenizer) -> None:
    _, tasks, root = tiny("clip", tokenizer)
    network = root.network().eval()
    batch = tasks["pairs"].micro_batch(samples, (0, 0)).views["main"]
    before = network(batch)["text"]
    last = batch.streams["text"].offsets[1:] - 1
    batch.streams["text"].fields["input_ids"][last] = 1
    after = network(batch)["text"]
    changed = (before != after).any(-1).nonzero()[:, 0]
    assert torch.equal(changed, last)


def test_clip_can_be_embedded_apart(samples: list[Sample], tokenizer: Tokenizer) -> None:
    """Texts without images give the vectors they have next to them: what retrieval needs."""
    _, tasks, root = tiny("clip", tokenizer)
    root.eval()
    head, network = root.heads["itc"], root.network()
    assert isinstance(head, GlobalBatchHead)
    batch = tasks["pairs"].micro_batch(samples, (0, 0)).views["main"]
    alongside = head.vectors(read(network, batch), "text")
    alone = dataclasses.replace(batch, streams={"text": batch.streams["text"]})
    torch.testing.assert_close(head.vectors(read(network, alone), "text"), alongside)

"""Knowledge that pretraining had is not lost in fine-tuning without a word."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kg.evaluation.task_options import TypingTuning
from kg.evaluation.tasks.entity_typing import EntityTyping
from tests.kg.evaluation.conftest import recipe_tree
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain

PARTS = """
import numpy as np

from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.builders.mention import MentionBuilder
from workbench.sequences.sequence import Rows


class Entities:
    def __call__(self, samples, draws):
        sequences = super().__call__(samples, draws)
        for sequence in sequences:
            sequence.streams["entity"] = {"entity_ids": np.array([1]), "token": Rows("text", np.array([1]), bound=True)}
        return sequences


class Linked(Entities, DocumentBuilder):
    reads_spans = True


class LinkedMention(Entities, MentionBuilder):
    reads_spans = True


class Quiet(Entities, DocumentBuilder):
    pass
"""


@pytest.fixture
def run_with(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """A run whose builder, of this name, fills the entity stream itself."""
    (tmp_path / "entity_builders.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)

    def trained(builder: str) -> Path:
        tree = recipe_tree(world, "entities")
        tree["tasks"]["facts"]["sequence"] = {"builder": f"entity_builders:{builder}", "max_length": 24}
        tree["train"] |= {"max_steps": 1, "lr_schedule": "linear"}
        return pretrain(recipe_from_dict(tree), tmp_path / "run")

    yield trained
    sys.modules.pop("entity_builders", None)


def tuning(world: Path, run: Path, *overrides: str, without: list[str] | None = None) -> TypingTuning:
    quick = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.num_workers=0", *overrides]
    return TypingTuning(run=run, corpus=str(world / "typing"), overrides=quick, max_length=24, without=without)


def test_a_builder_that_brought_knowledge_is_not_replaced_by_one_that_brings_none(
    world: Path, run_with: Callable[[str], Path]
) -> None:
    run = run_with("Linked")
    with pytest.raises(WorkbenchError, match=r"Linked' adds knowledge .* 'mention' doesn't: fine-tuning would lose it"):
        fine_tune(EntityTyping(), tuning(world, run))
    kept = "tasks.entity-typing.sequence.builder=entity_builders:LinkedMention"
    assert fine_tune(EntityTyping(), tuning(world, run, kept)).is_dir()


def test_a_stream_that_nothing_fills_is_named(world: Path, run_with: Callable[[str], Path]) -> None:
    run = run_with("Quiet")
    with pytest.raises(
        WorkbenchError, match=r"reads the stream 'entity', and nothing fills it .* pass --without entity"
    ):
        recipe_of(EntityTyping(), tuning(world, run))
    assert recipe_of(EntityTyping(), tuning(world, run, without=["entity"])).tasks

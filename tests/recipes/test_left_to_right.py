"""A run that was trained on texts read from left to right reads them so wherever it is used."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.loaded_runs import encode_texts
from workbench.evaluation.analysis.encoding import Encoder
from workbench.evaluation.finetuning.finetuning import recipe_of
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe, SequenceSpec
from workbench.runs.loaded_run import load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain

LINES = ["They like the river and Norway.", "They like the river and Korea", "They like the river."]


@pytest.fixture(scope="module")
def gpt(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = load_recipe(
        "gpt",
        [
            f"tokenizer={world.tokenizer}",
            f"tasks.text.corpora=['{world.plain}']",
            "tasks.text.sequence.max_length=32",
            "model.streams.text.hidden_size=16",
            "model.layers.0.num_heads=2",
            "model.layers.0.intermediate_size=32",
            "model.layers.0.repeat=2",
            "model.poolers=[text]",
            "train.max_steps=2",
            "train.lr_schedule.warmup_steps=1",
            "train.num_workers=0",
            "train.global_batch_size=8",
            "train.micro_batch_size=8",
        ],
    )
    return pretrain(recipe, tmp_path_factory.mktemp("runs") / "gpt")


def test_states_of_a_beginning_are_the_same_whatever_follows(gpt: Path) -> None:
    loaded = load(gpt)
    encoder = Encoder(loaded)
    texts = [{"key": str(i), "draw": (0, 0, i), "text": line} for i, line in enumerate(LINES)]
    sequences = encoder._texts(texts, ())
    states = loaded.model.network()(collate(sequences))["text"]
    first, second, third = states.split([s.length("text") for s in sequences])
    ids = [s.streams["text"]["input_ids"].tolist() for s in sequences]
    common = next(i for i, (a, b) in enumerate(zip(*ids[:2], strict=False)) if a != b)
    assert common >= 5
    torch.testing.assert_close(first[:common], second[:common])
    torch.testing.assert_close(first[: common - 1], third[: common - 1])
    assert not torch.allclose(first[common], second[common])


@pytest.mark.parametrize("pool", ["summary", "pooled"])
def test_the_last_row_stands_for_a_text(gpt: Path, pool: str) -> None:
    """The first has seen nothing: it would be the same for all texts."""
    loaded = load(gpt)
    vectors = encode_texts(loaded, LINES, pool=pool)
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-4)
    torch.testing.assert_close(vectors[:1], encode_texts(loaded, LINES[:1], pool=pool))


class Plain(DownstreamTask[Tuning, Any]):
    """A task that is what the test says."""

    def __init__(self, sequence: SequenceSpec, objective: dict[str, Any]) -> None:
        self.planned = Setup(sequence, objective)

    def setup(self, tuning: Tuning, base: Recipe) -> Setup:
        return self.planned


def fine_tuned(run: Path, world: Any, sequence: SequenceSpec, objective: dict[str, Any]) -> Recipe:
    return recipe_of(Plain(sequence, objective), Tuning(run=run, corpus=str(world.plain)))


@pytest.mark.parametrize("builder", ["document", "packed"])
def test_fine_tuning_keeps_it(gpt: Path, world: Any, builder: str) -> None:
    recipe = fine_tuned(gpt, world, SequenceSpec({"builder": builder, "max_length": 32}), {"objective": "mlm"})
    assert recipe.tasks["plain"].sequence.visibility == "causal"


def test_fine_tuning_keeps_the_other_direction_too(gpt: Path, world: Any, tmp_path: Path) -> None:
    run = shutil.copytree(gpt, tmp_path / "run")
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace("visibility: causal", "visibility: anticausal"))
    found = fine_tuned(run, world, SequenceSpec({"builder": "document", "max_length": 32}), {"objective": "mlm"})
    assert found.tasks["plain"].sequence.visibility == "anticausal"


def test_what_fine_tuning_says_itself_holds(gpt: Path, world: Any) -> None:
    builder = {"builder": "document", "max_length": 32, "visibility": "bidirectional"}
    recipe = fine_tuned(gpt, world, SequenceSpec(builder), {"objective": "mlm"})
    assert recipe.tasks["plain"].sequence.visibility == "bidirectional"

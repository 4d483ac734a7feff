"""Objectives on streams of any name: trained side by side, each with the rows and the table of its own stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.test_task import SAMPLES
from workbench.core.errors import WorkbenchError
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.metrics_file import read_metrics
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain

PARTS = """
from workbench.sequences.builders.document import DocumentBuilder

class Captioned(DocumentBuilder):
    def __call__(self, samples, draws):
        sequences = super().__call__(samples, draws)
        for sequence, caption in zip(sequences, super().__call__(samples[::-1], draws)):
            sequence.streams["caption"] = caption.streams["text"]
        return sequences
"""
MLM = {"objective": "mlm", "stream": "caption", "name": "of_caption", "rate": 0.3}


def two_streams(make_recipe: Any, folder: Path, *objectives: dict[str, Any], **builder: Any) -> Recipe:
    """The tiny recipe with a narrower stream `caption` next to `text`, and these objectives."""

    def change(tree: dict[str, Any]) -> None:
        model, task = tree["model"], tree["tasks"]["text"]
        model["streams"]["caption"] = {"embedding": "token", "hidden_size": 8, "max_positions": 32}
        model["layers"].append({"layer": "self", "stream": "caption", "num_heads": 2})
        model["poolers"] = ["caption"]
        task["sequence"].update(builder="captioned:Captioned", **builder)
        task["objectives"] = list(objectives)
        tree["train"].update(max_steps=24, lr=0.02)

    (folder / "captioned.py").write_text(PARTS)
    return load_recipe(str(make_recipe(change)), trust=True)


@pytest.mark.parametrize("masking", ["token", "whole_word", "span", "entity", "field"])
def test_every_masking_strategy_chooses_rows_of_the_stream(make_recipe: Any, tmp_path: Path, masking: str) -> None:
    recipe = two_streams(make_recipe, tmp_path, {"objective": "mlm"}, MLM | {"masking": masking})
    task = tasks_of(recipe, Tokenizer.load(str(recipe.tokenizer)))["text"]
    batch = task.micro_batch(SAMPLES, (0, 0, 0)).views["main"]
    clean = task.sequences(SAMPLES, (0, 0, 0))
    for objective, stream in (("mlm", "text"), ("of_caption", "caption")):
        assert batch.links[objective] == {"rows": stream}
        ids = [token for sequence in clean for token in sequence.streams[stream]["input_ids"].tolist()]
        rows, labels = (batch.targets[objective][name].tolist() for name in ("rows", "labels"))
        assert [ids[row] for row in rows] == labels
        now = batch.streams[stream].fields["input_ids"].tolist()
        assert {row for row, token in enumerate(ids) if now[row] != token} <= set(rows)


def test_objectives_of_two_streams_train_side_by_side(make_recipe: Any, tmp_path: Path) -> None:
    rtd = {"objective": "rtd", "of": "of_caption", "stream": "caption"}
    recipe = two_streams(make_recipe, tmp_path, {"objective": "mlm"}, MLM, rtd)
    losses = read_metrics(pretrain(recipe, tmp_path / "run"))
    for name in ("mlm", "of_caption"):
        first, last = (sum(line[f"{name}/loss"] for line in part) for part in (losses[:4], losses[-4:]))
        assert last < 0.9 * first, name


def test_a_causal_stream_trains(make_recipe: Any, tmp_path: Path) -> None:
    recipe = two_streams(make_recipe, tmp_path, {"objective": "clm", "stream": "caption"}, visibility="causal")
    losses = read_metrics(pretrain(recipe, tmp_path / "run"))
    assert losses[-1]["clm/loss"] < 0.9 * losses[0]["clm/loss"]


def test_one_name_for_two_streams_is_refused(make_recipe: Any, tmp_path: Path) -> None:
    recipe = two_streams(make_recipe, tmp_path, {"objective": "mlm"}, {"objective": "mlm", "stream": "caption"})
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    with pytest.raises(WorkbenchError, match="several objectives are named 'mlm'; give each its own `name`"):
        tasks_of(recipe, tokenizer)


def test_a_stream_that_is_not_there_is_reported(make_recipe: Any, tmp_path: Path) -> None:
    recipe = two_streams(make_recipe, tmp_path, MLM | {"stream": "captoin"})
    tasks = tasks_of(recipe, tokenizer := Tokenizer.load(str(recipe.tokenizer)))
    with pytest.raises(WorkbenchError, match="no stream 'captoin' with a token table"):
        make_model(recipe, tasks, tokenizer)
    with pytest.raises(WorkbenchError, match=r"unknown stream 'captoin' in sequence 'a'.*Did you mean 'caption'"):
        tasks["text"].micro_batch(SAMPLES, (0, 0, 0))

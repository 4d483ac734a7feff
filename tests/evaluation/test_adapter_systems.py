"""Rates by layers, LoRA and adapters next to the layers, on systems of other shapes than BERT's: each is fine-tuned and
evaluated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluation.tasks.test_classify import rows, tuning
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring
from workbench.evaluation.tasks.classify import Classification
from workbench.recipe.reading import load_recipe
from workbench.training.pretrain import pretrain

SYSTEMS = ("albert", "bart", "gpt-2", "xlnet")
WAYS = {
    "layer decay": "train.layer_decay=0.8",
    "lora": "model.adapt=[{adapter: lora, targets: [layers.*.qkv], rank: 2}]",
    "side": "model.adapt=[{adapter: side, stream: text, after: [0, 1], size: 4, depth: 1, num_heads: 2}]",
}
STEPS = ("train.max_steps=1", "train.lr_schedule.warmup_steps=0")


@pytest.fixture(scope="module", params=SYSTEMS)
def system(
    request: pytest.FixtureRequest, texts: Path, prepared: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    corpus = prepared("sentences", [{"text": f"The house is {state}. It was good."} for state in ("old", "new") * 4])
    corpora = [f"tokenizer={texts / 'tokenizer.json'}", f"tasks.text.corpora=['{corpus}']"]
    quick = ["train.global_batch_size=8", "train.micro_batch_size=8", "train.num_workers=0", *STEPS]
    recipe = load_recipe(f"{request.param}-tiny", [*corpora, *quick])
    return pretrain(recipe, tmp_path_factory.mktemp("systems") / str(request.param))


@pytest.mark.parametrize("way", WAYS)
def test_a_system_is_fine_tuned_so(way: str, system: Path, prepared: Callable[..., str], tmp_path: Path) -> None:
    movies = prepared("movies", rows(64, 0))
    run = fine_tune(Classification(), tuning(system, movies, tmp_path / "run", WAYS[way], *STEPS))
    found = evaluate(Classification(), ClassifyScoring(run=run, corpus=movies, limit=16))
    assert found.counts["texts"] == 16

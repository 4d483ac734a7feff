"""A joint model that predicts captions one token after another says what it sees in images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.generation.conftest import Uncached
from workbench.cli.generation import generate
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.generation import Generator, without_captions
from workbench.evaluation.scoring.passes import sample_pass
from workbench.generation.beams import beam_search
from workbench.generation.decoding import Decoding
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

DECODING = Decoding(max_new_tokens=6, beams=2)


@pytest.fixture(scope="module")
def captioner(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = load_recipe(
        "tiny-joint",
        [
            f"tokenizer={world.tokenizer}",
            f"tasks.pairs.corpora=['{world.images}']",
            "tasks.pairs.sequence.visibility=causal",
            "tasks.pairs.objectives=[{objective: clm}]",
            "train.max_steps=20",
            "train.global_batch_size=8",
        ],
    )
    return pretrain(recipe, tmp_path_factory.mktemp("runs") / "captioner")


@torch.no_grad()
def test_images_get_captions_and_the_cache_changes_none(captioner: Path, world: Any, tmp_path: Path) -> None:
    generate(captioner, world.images, DECODING, tmp_path / "captions.jsonl", limit=3, batch_size=2)
    made = [json.loads(line) for line in (tmp_path / "captions.jsonl").read_text("utf-8").splitlines()]
    generator = Generator(load(captioner), DECODING)
    [samples] = sample_pass([Corpus.open(world.images)], size=3, unit=None, limit=3)
    prompts = [generator._prompt(sample) for sample in without_captions(samples)]
    assert all(prompt.length("text") == 1 < prompt.length("image") for prompt in prompts)
    head = generator.loaded.model.heads["clm"]
    uncached: Any = Uncached(generator.network, head, generator.continuation, prompts)
    expected = beam_search(uncached, DECODING, 3)
    assert [text["key"] for text in made] == [sample["key"] for sample in samples]
    assert [text["text"] for text in made] == [generator.tokenizer.decode(text.tokens) for text in expected]
    assert [text["score"] for text in made] == pytest.approx([text.score for text in expected], abs=1e-4)

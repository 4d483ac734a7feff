"""What the peers of the vision-language steps are given is what ours are given, padded."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import vision_peers
from benchmarks.vision_peers import ATTRIBUTES, FEATURES, OBJECTS, PEERS, deep
from benchmarks.vision_steps import prepare, recipe_of
from pipelines.gpu.stepping import micro_batches
from pipelines.gpu.text_peers import IGNORED, loss_of
from workbench.sequences.batch import Batch
from workbench.text.tokenizer import Tokenizer

REGIONS = 6
CAPTIONS = ["A dog runs.", "Two children play on the grass near a long fence.", "A man in a red coat."]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps")
    (folder / "flickr8k").mkdir()
    lines = [json.dumps({"captions": [caption, f"{caption} Again."]}) for caption in CAPTIONS * 2]
    (folder / "flickr8k/captions_dev.jsonl").write_text("\n".join(lines))
    return prepare(folder, folder, REGIONS)


def given(system: str, corpus: Path) -> tuple[Batch, dict[str, Any]]:
    """A batch of ours and the peer's inputs."""
    recipe = recipe_of(system, corpus, argparse.Namespace(layers=1, regions=REGIONS, batch=6, length=0))
    ((_, micro),) = micro_batches(recipe, Tokenizer.load(recipe.tokenizer or ""), 1)
    (batch,) = micro.views.values()
    return batch, PEERS[system].inputs(micro)


@pytest.mark.parametrize("system", PEERS)
def test_words_and_labels_are_those_of_the_batch(system: str, corpus: Path) -> None:
    batch, inputs = given(system, corpus)
    there = inputs["attention_mask"].bool()
    assert 1 < there.shape[1] == max(batch.streams["text"].lengths)
    assert torch.equal(inputs["input_ids"][there], batch.streams["text"].fields["input_ids"])
    words = inputs["labels"][:, : there.shape[1]]
    assert torch.equal(words[words != IGNORED], batch.targets["mlm"]["labels"])
    assert (words[~there] == IGNORED).all()
    assert inputs["labels"].shape[1] == there.shape[1] + (0 if system == "lxmert" else REGIONS)
    features = inputs["visual_feats" if system == "lxmert" else "visual_embeds"]
    assert features.shape == (6, REGIONS, FEATURES)
    assert torch.equal(features.flatten(0, 1), batch.streams["image"].fields["features"].float())


def test_lxmert_is_asked_for_the_same_regions(corpus: Path) -> None:
    batch, inputs = given("lxmert", corpus)
    hidden = batch.targets["mrfr"]["rows"]
    for name, target, count in (("obj", "objects", OBJECTS), ("attr", "attributes", ATTRIBUTES)):
        labels, weights = inputs["obj_labels"][name]
        assert torch.equal(labels.flatten()[hidden], batch.targets[target]["labels"])
        assert torch.equal(weights.flatten()[hidden], batch.targets[target]["weights"])
        assert int(labels.max()) < count
        assert weights.count_nonzero() == len(hidden)
    features, asked = inputs["obj_labels"]["feat"]
    assert asked.sum() == len(hidden) > 0
    assert torch.equal(features.flatten(0, 1)[hidden], batch.targets["mrfr"]["features"].float())


@pytest.mark.parametrize("system", ["visualbert", "lxmert"])
def test_masked_words_alone_have_the_same_loss(system: str, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, inputs = given(system, corpus)
    config = vision_peers.LxmertConfig if system == "lxmert" else vision_peers.VisualBertConfig
    small = partial(config, hidden_size=24, num_attention_heads=2, intermediate_size=24)
    monkeypatch.setattr(vision_peers, config.__name__, small)
    model = PEERS[system].made(1, 30522).eval()
    with torch.no_grad():
        torch.testing.assert_close(loss_of(model, inputs), loss_of(model, inputs, PEERS[system].head))


def test_grouped_micro_batches_hold_captions_of_one_length(corpus: Path) -> None:
    options = argparse.Namespace(layers=1, regions=REGIONS, batch=6, length=0)
    recipe = recipe_of("uniter", corpus, options)
    micros = micro_batches(recipe, Tokenizer.load(recipe.tokenizer or ""), 4, by_length=True)
    spans = [batch.streams["text"].lengths for _, micro in micros for batch in micro.views.values()]
    assert all(len(lengths) == 6 and max(lengths) - min(lengths) <= 2 for lengths in spans)
    assert [min(lengths) for lengths in spans] == sorted(min(lengths) for lengths in spans)
    assert max(spans[-1]) > 2 * max(spans[0])


def test_depths_are_in_the_paper_s_proportions() -> None:
    assert list(deep(12).values()) == [9, 5, 5]
    assert list(deep(1).values()) == [1, 1, 1]

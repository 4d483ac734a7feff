"""CoCa: both losses in loops, who sees the image, retrieval, and captions with and without the cache."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.generation.conftest import Uncached
from tests.vision.evaluation.conftest import make_squares
from vision.evaluation.task_options import CaptionScoring, RetrievalScoring
from vision.evaluation.tasks.caption import Caption
from vision.evaluation.tasks.retrieval import Retrieval
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.generation import Generator, without_captions
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.passes import sample_pass
from workbench.generation.beams import beam_search
from workbench.generation.decoding import Decoding
from workbench.pretraining.forward import HeadInputs, NetworkOutput, read
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import LoadedRun, load
from workbench.sequences.batch import Batch
from workbench.training.pretrain import pretrain

SMALL = {
    "vars.queries": 3,
    "model.streams.text.hidden_size": 32,
    "model.streams.image.hidden_size": 32,
    "model.streams.image.grid": 2,
    "model.streams.image.patch": 8,
    "model.streams.captioning.hidden_size": 32,
    "model.streams.contrast.hidden_size": 32,
    "tasks.pairs.sequence.image_processor.size": 16,
    "tasks.pairs.sequence.image_processor.patch": 8,
    "tasks.pairs.objectives.1.size": 16,
    "train.max_steps": 12,
    "train.global_batch_size": 16,
    "train.micro_batch_size": 16,
    "train.lr": 3e-3,
    "train.lr_schedule.warmup_steps": 2,
} | {f"model.layers.{layer}.intermediate_size": 64 for layer in (0, 5, 7)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_squares(tmp_path_factory.mktemp("coca"))
    changes = [f"tokenizer={folder / 'tokenizer.json'}", f"vars.corpus={folder / 'train'}"]
    changes += [f"{name}={value}" for name, value in SMALL.items()]
    return pretrain(load_recipe("coca-tiny", changes), folder / "run")


@pytest.fixture(scope="module")
def batch_of(run: Path) -> Callable[[LoadedRun], Batch]:
    [samples] = sample_pass([Corpus.open(run.parent / "train")], size=6, unit="captions", limit=6)
    return lambda loaded: loaded.tasks["pairs"].evaluating().micro_batch(samples, (0,)).views["main"]


def rows(batch: Batch, stream: str) -> list[slice]:
    offsets = batch.streams[stream].offsets.tolist()
    return [slice(a, b) for a, b in pairwise(offsets)]


@torch.no_grad()
def test_both_losses_in_loops(run: Path, batch_of: Callable[[LoadedRun], Batch]) -> None:
    loaded = load(run)
    batch, heads, network = batch_of(loaded), loaded.model.heads, loaded.model.network()
    seen = read(network, batch)
    table = heads["clm"].output.weight.double()
    captions, labels = 0.0, 0
    for sequence in rows(batch, "text"):
        ids = batch.streams["text"].fields["input_ids"][sequence].tolist()
        states = seen.states["text"][sequence].double()
        for place in range(len(ids) - 1):
            captions -= float(torch.log_softmax(table @ states[place], 0)[ids[place + 1]])
            labels += 1
    found = heads["clm"](HeadInputs.of_read(seen, batch.targets["clm"]))

    assert float(found.loss) == pytest.approx(captions, rel=1e-5)
    head: Any = heads["itc"]
    vectors = {"text": [], "contrast": []}  # type: dict[str, list[np.ndarray]]
    for stream, place in (("text", -1), ("contrast", 0)):
        norm, map_ = head.space.norms[stream].double(), head.space.projections[stream].double()
        for sequence in rows(batch, stream):
            vector = map_(norm(seen.taps["unimodal"][stream][sequence][place].double())).numpy()
            vectors[stream].append(vector / np.linalg.norm(vector))
    head.float()
    scale = np.exp(float(head.logit_scale))
    ids = batch.targets["itc"]["image"].tolist()
    contrast = 0.0
    for one, other in (("text", "contrast"), ("contrast", "text")):
        for i, query in enumerate(vectors[one]):
            keys = [j for j in range(len(ids)) if j == i or ids[j] != ids[i]]
            scores = np.array([scale * query @ vectors[other][j] for j in keys])
            contrast += (np.log(np.exp(scores).sum()) - scores[keys.index(i)]) / 2
    embedded = head.embed(HeadInputs.of_read(seen, batch.targets["itc"]))
    assert float(head.loss(embedded, slice(None)).loss) == pytest.approx(contrast, rel=1e-4)
    weights = {spec["objective"]: spec["weight"] for spec in loaded.recipe.tasks["pairs"].objectives}
    assert weights == {"clm": 2.0, "vision.itc": 1.0}


@torch.no_grad()
def test_the_first_half_reads_the_text_alone_and_the_second_the_image(
    run: Path, batch_of: Callable[[LoadedRun], Batch]
) -> None:
    network = load(run).model.network()
    batch = batch_of(load(run))
    patches = batch.streams["image"].fields["patches"]

    def states() -> NetworkOutput:
        return read(network, batch)

    first = states()
    kept: Tensor = patches.clone()
    patches.copy_(255 - patches)
    other = states()
    patches.copy_(kept)
    torch.testing.assert_close(first.taps["unimodal"]["text"], other.taps["unimodal"]["text"])
    assert not torch.allclose(first.states["text"], other.states["text"], atol=1e-3)
    assert not torch.allclose(first.states["contrast"], other.states["contrast"], atol=1e-3)
    ids = batch.streams["text"].fields["input_ids"]
    last = batch.streams["text"].offsets[1:] - 1
    ids[last] = 5
    changed = states()
    before = torch.ones(len(ids), dtype=torch.bool)
    before[last] = False
    torch.testing.assert_close(first.states["text"][before], changed.states["text"][before])


@torch.no_grad()
def test_captions_are_the_same_without_the_cache(run: Path) -> None:
    decoding = Decoding(max_new_tokens=8, beams=3)
    generator = Generator(load(run), decoding)
    [samples] = sample_pass([Corpus.open(run.parent / "test")], size=4, unit=None, limit=4)
    made = generator(without_captions(samples))
    prompts = [generator._prompt(sample) for sample in without_captions(samples)]
    assert {*prompts[0].streams} == {"text", "image", "captioning", "contrast"}
    head: Any = generator.loaded.model.heads["clm"]
    uncached: Any = Uncached(generator.network, head, generator.continuation, prompts)
    expected = beam_search(uncached, decoding, len(prompts))
    assert [one.tokens for one in made] == [one.tokens for one in expected]
    assert [one.score for one in made] == pytest.approx([one.score for one in expected], abs=1e-4)


def test_it_is_evaluated_as_a_dual_encoder_and_as_a_captioner(run: Path) -> None:
    found = evaluate(Retrieval(), RetrievalScoring(run=run, corpus=str(run.parent / "train"), batch_size=7))
    assert found.counts["images"] == 32
    written = evaluate(Caption(), CaptionScoring(run=run, corpus=str(run.parent / "test"), max_new_tokens=10))
    assert written.counts == {"images": 10, "references": 20}

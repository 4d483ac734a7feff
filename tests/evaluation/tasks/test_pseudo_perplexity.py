"""Pseudo-perplexity: every token masked alone, equal to a loop over Hugging Face's model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import TEXTS, make_texts, prepare, pretrain_on
from tests.evaluation.tasks.test_perplexity import causal
from tests.interop.test_run_or_checkpoint import bert  # noqa: F401 - a fixture
from tests.interop.worlds import WORDS
from workbench.evaluation.likelihood_options import PseudoPerplexityScoring
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.tasks.pseudo_perplexity import PseudoPerplexity
from workbench.interop.run_or_checkpoint import load


def contract_world(folder: Path) -> World:
    texts = make_texts(folder)
    return World(pretrain_on(texts), str(texts / "texts"), causal(texts), {})


CASE = EvaluationCase(world=contract_world)


def scored(run: Path, corpus: str, **options: Any) -> Result:
    return evaluate(PseudoPerplexity(), PseudoPerplexityScoring(run=run, corpus=corpus, **options))


def test_losses_are_those_of_the_library(
    bert: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [" ".join(WORDS[:7]), " ".join(WORDS * 3), " ".join(WORDS[5:8])]  # the second is cut in two
    corpus = prepare(tmp_path, "texts", [{"text": text} for text in texts])
    found = scored(bert, corpus, batch_size=5)
    loaded = load(bert)
    model = transformers.AutoModelForMaskedLM.from_pretrained(bert).eval()
    samples = [{"key": str(i), "draw": (0, 0, i), "text": text} for i, text in enumerate(texts)]
    sequences = loaded.tasks["text"].sequences(samples)
    assert len(sequences) == 4
    nats = 0.0
    for sequence in sequences:
        ids = torch.from_numpy(sequence.streams["text"]["input_ids"])
        for row in range(1, len(ids) - 1):
            masked = ids.clone()
            masked[row] = 4
            with torch.no_grad():
                nats -= float(model(masked[None]).logits[0, row].log_softmax(0)[ids[row]])
    tokens = sum(s.length("text") - 2 for s in sequences)
    assert found.counts["tokens"] == tokens == sum(len(text.split()) for text in texts)
    assert found.numbers["loss"] == pytest.approx(nats / tokens, abs=1e-5)
    assert found.numbers["pseudo_perplexity"] == pytest.approx(math.exp(found.numbers["loss"]))
    size = sum(len(text.encode()) for text in texts)
    assert found.numbers["bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)


def test_a_pair_builders_texts_are_read_by_themselves(tmp_path: Path) -> None:
    texts = make_texts(tmp_path)
    run = pretrain_on(texts)
    found = scored(run, str(texts / "texts"), limit=3)
    assert found.counts["texts"] == 3
    assert [line["key"] for line in found.predictions.lines] == ["r0", "r1", "r2"]
    assert found.examples[0]["tokens"] == TEXTS[0].split()

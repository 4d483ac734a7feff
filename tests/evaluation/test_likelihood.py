"""Probabilities of tokens, added up: however many ranks share them, compared with frequencies alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.conftest import prepare
from tests.evaluation.tasks.test_perplexity import causal
from tests.evaluation.test_objective_task import scored_by_ranks
from workbench.core.errors import WorkbenchError
from workbench.core.packages import library
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.likelihood import Cost, entropy, unigram_loss
from workbench.evaluation.scoring.likelihood_task import LikelihoodTask
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.tasks.perplexity import Perplexity
from workbench.evaluation.tasks.pseudo_perplexity import PseudoPerplexity


@pytest.mark.parametrize("task", [Perplexity(), PseudoPerplexity()], ids=lambda task: task.name)
def test_two_ranks_say_what_one_says(task: LikelihoodTask[Any], pretrained: Path, texts: Path) -> None:
    run = causal(texts, "ranks") if isinstance(task, Perplexity) else pretrained
    scoring = task.scoring(run=run, corpus=str(texts / "texts"), batch_size=4)
    results: dict[int, Result] = {}

    def score(rank: int, world: World) -> None:
        opened = replace(task.open(scoring), world=world)
        results[rank] = task.score(opened, Corpus.open(scoring.corpus), scoring)

    scored_by_ranks(score)
    for rank in range(2):
        assert results[rank].numbers == pytest.approx(results[-1].numbers)
        assert results[rank].counts == results[-1].counts
        ours, theirs = ([line["key"] for line in results[i].predictions.lines] for i in (rank, -1))
        assert ours == theirs


def test_an_empty_text_costs_nothing_and_a_corpus_of_them_is_refused(texts: Path, tmp_path: Path) -> None:
    run, task = causal(texts, "empty", begin=None, end=None), Perplexity()
    some = prepare(tmp_path, "some", [{"text": "the"}, {"text": "the red house"}])
    scoring = task.scoring(run=run, corpus=some)
    found = task.score(task.open(scoring), Corpus.open(some), scoring)
    assert [line["tokens"] for line in found.predictions.lines] == [0, 2]  # a single token is given, not predicted
    assert "perplexity" not in found.predictions.lines[0]
    none = prepare(tmp_path, "none", [{"text": "the"}])
    with pytest.raises(WorkbenchError, match="nothing to predict in corpus 'none'"):
        task.score(task.open(scoring), Corpus.open(none), scoring)


def test_frequencies_are_reported_in_nats() -> None:
    counts = {7: 3, 9: 1}
    assert entropy(counts) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert unigram_loss(counts, Counter({7: 4}), 10) == pytest.approx(-(3 * math.log(5 / 14) + math.log(1 / 14)) / 4)


def test_what_is_no_number_is_reported() -> None:
    assert Cost(2, 2 * math.log(8), 3, 6).numbers() == pytest.approx(
        {"perplexity": 8.0, "loss": math.log(8), "bits_per_byte": 1.0, "bits_per_character": 2.0}
    )
    with pytest.raises(WorkbenchError, match="did the training diverge"):
        Cost(2, math.nan).numbers()


def test_a_library_that_is_missing_is_named_with_what_brings_it() -> None:
    with pytest.raises(WorkbenchError, match=r"scores need the package 'no_such_library'.*\[text\]"):
        library("no_such_library", "text", "scores")

"""Cosines of words by layer, compared with those of states that were read one by one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from tests.contracts.cases import EvaluationCase
from tests.evaluation.conftest import prepare
from tests.evaluation.tasks.analysis_world import analysis_world, mixing_run, rows, words_by_layer
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis import network_task
from workbench.evaluation.analysis_options import AnisotropyScoring
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.tasks.anisotropy import Anisotropy

CASE = EvaluationCase(world=lambda folder: analysis_world(folder, pairs=20, contexts=2))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(tmp_path_factory.mktemp("words"), "tagged", rows())


@pytest.fixture(scope="module")
def run(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixing_run(texts, tmp_path_factory.mktemp("mixing") / "run")


def scored(run: Path, corpus: str, task: Any = None, **options: Any) -> Any:
    return evaluate(task or Anisotropy(), AnisotropyScoring(run=run, corpus=corpus, **options), show=False)


def test_cosines_are_those_of_states_read_one_by_one(run: Path, corpus: str) -> None:
    found = scored(run, corpus, pairs=50, contexts=3)
    states = words_by_layer(run, Corpus.open(corpus))
    by_word: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for (_, word), of in states.items():
        by_word[word].append(of)
    for layer in range(3):
        for line in found.predictions.lines[:50]:
            first, second = line["words"]
            mine = states[line["key"], first][layer]
            near = cosine_similarity([mine], [of[layer] for of in by_word[second]])[0]
            assert np.abs(near - line["values"][layer]).min() < 1e-5
        own = {line["key"]: line["values"][layer] for line in found.predictions.lines[50:]}
        for word in ("house", "red", "old", "the"):
            table = cosine_similarity([of[layer] for of in by_word[word]])
            wanted = (table.sum() - len(table)) / (len(table) ** 2 - len(table))
            assert own[f"word {word}"] == pytest.approx(wanted, abs=1e-5)
        base = found[f"anisotropy/layer_{layer}"]
        assert base == pytest.approx(np.mean([line["values"][layer] for line in found.predictions.lines[:50]]))
        adjusted = found[f"self_similarity/layer_{layer}"] - base
        assert found[f"adjusted_self_similarity/layer_{layer}"] == pytest.approx(adjusted)


def test_a_common_direction_is_anisotropy(run: Path, corpus: str) -> None:
    """Random weights have little; with one large vector in all states there is nothing else."""
    task = Anisotropy()
    opened: Any = task.open

    def shifted(scoring: AnisotropyScoring) -> Any:
        found = opened(scoring)
        with torch.no_grad():
            found.network.embeddings["text"].position.weight[:] = 100 * torch.linspace(-1, 1, 16)
        return found

    plain = scored(run, corpus)
    task.open = shifted  # type: ignore[method-assign]
    assert plain["anisotropy/layer_0"] < 0.7
    assert scored(run, corpus, task)["anisotropy/layer_0"] > 0.99


def test_what_cannot_be_analysed_is_refused(
    run: Path, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkbenchError, match="--objective: anisotropy reads a network without a head"):
        scored(run, corpus, objective="mlm")
    with pytest.raises(WorkbenchError, match="no two texts with words"):
        scored(run, corpus, limit=1)
    signs = prepare(tmp_path, "signs", [{"text": "\u200b a"}, {"text": "\u200b b"}])
    assert scored(run, signs, contexts=2).counts["words"] == 0
    monkeypatch.setattr(network_task, "STREAM", "image")
    with pytest.raises(WorkbenchError, match="reads text, and anisotropy needs texts"):
        scored(run, corpus)

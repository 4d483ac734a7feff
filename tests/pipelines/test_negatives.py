"""`prepare negatives`: hard negatives of pairs, by the vectors of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench
from pipelines.commands.corpora.negatives import negatives
from tests.evaluation.conftest import command, make_texts, prepare, pretrain_on
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.text_search import hard_negatives

PAIRS: list[dict[str, Any]] = [
    {"text": "the red house", "second": "a red house is old ."},
    {"text": "the blue boat", "second": "the boat is new ."},
    {"text": "the red house", "second": "it is lost ."},
    {"text": "a boat", "choices": ["green", "the green boat"], "answer": 1},
    {"text": "alone"},
]


@pytest.mark.parametrize(("skip", "below"), [(0, None), (1, None), (0, 0.9)])
def test_negatives_are_the_nearest_other_passages(tmp_path: Path, skip: int, below: float | None) -> None:
    run, corpus = pretrain_on(make_texts(tmp_path)), prepare(tmp_path, "pairs", PAIRS)
    command(negatives)(run=run, corpus=corpus, output=tmp_path / "out", most=2, skip=skip, below=below, workers=1)
    found = [*Corpus.open(tmp_path / "out")]
    passages = ["a red house is old .", "the boat is new .", "it is lost .", "the green boat"]
    assert [sample["choices"][0] for sample in found] == passages
    assert all(sample["answer"] == 0 and "second" not in sample for sample in found)
    model = workbench.load(run)
    read, asked = model.encode(passages), model.encode([sample["text"] for sample in found])
    cosines = asked @ read.T / np.linalg.norm(asked, axis=1)[:, None] / np.linalg.norm(read, axis=1)
    for number, sample in enumerate(found):
        right = {0, 2} if number in (0, 2) else {number}
        limit = np.inf if below is None else below * cosines[number, number]
        order = [i for i in np.argsort(-cosines[number]) if i not in right and cosines[number, i] <= limit]
        assert sample["choices"][1:] == [passages[i] for i in order[skip : skip + 2]]


def test_titled_documents_are_recognised_and_written_as_passages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A record without a text is dropped; one without any negative is counted."""
    run = pretrain_on(make_texts(tmp_path))
    pairs = prepare(tmp_path, "pairs", [*PAIRS[:2], {"choices": ["a", "b"], "answer": 0, "translations": {"en": "x"}}])
    rows = [{"title": "red", "text": pair["second"]} for pair in PAIRS[:3]]
    documents = prepare(tmp_path, "documents", rows)
    command(negatives)(run=run, corpus=pairs, documents=str(documents), output=tmp_path / "out", most=5, workers=1)
    found = [*Corpus.open(tmp_path / "out")]
    passages = {"a red house is old .", "the boat is new .", "it is lost ."}
    assert len(found) == 2
    for sample in found:
        assert len(sample["choices"]) == 3
        assert {*sample["choices"]} == passages
    one = prepare(tmp_path, "one", PAIRS[:1])
    command(negatives)(run=run, corpus=one, output=tmp_path / "none", workers=1)
    assert "1 of 1 queries have no hard negative" in caplog.text


class Signs:
    """Vectors of one number: that of a text, and 1 of every query."""

    def of_queries(self, texts: list[str]) -> torch.Tensor:
        return torch.ones(len(texts), 1)

    def of_documents(self, texts: list[str]) -> torch.Tensor:
        return torch.tensor([[float(text)] for text in texts])


def test_a_negative_score_has_a_limit_below_it_and_many_negatives_are_found() -> None:
    vectors: Any = Signs()
    assert hard_negatives(vectors, ["q"], ["-1"], ["-1", "-1.05", "-1.2"], most=2, below=0.9) == [["-1.2"]]
    many = [str(-number) for number in range(1, 1200)]
    [found] = hard_negatives(vectors, ["q"], ["-1"], many, most=1100, skip=5)
    assert found == many[6:1106]


def test_a_corpus_without_pairs_is_refused(tmp_path: Path) -> None:
    run = pretrain_on(make_texts(tmp_path))
    with pytest.raises(WorkbenchError, match=r"no record of .* has a `text` with a `second`"):
        command(negatives)(run=run, corpus=str(tmp_path / "texts"), output=tmp_path / "out", workers=1)

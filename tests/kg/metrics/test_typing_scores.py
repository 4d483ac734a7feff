"""Entity typing metrics against the released scripts' numbers and a plain loop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kg.evaluation.typing.type_inventory import OPEN_ENTITY
from kg.metrics.typing_scores import predicted_types, typing_scores


@pytest.fixture(scope="module", params=["figer", "open_entity"])
def golden(request, shared: Path):
    folder = shared / "golden/typing_and_relation_metrics"
    expected = json.loads((folder / f"{request.param}_expected.json").read_text())
    rows = [line.split("\t") for line in (folder / f"{request.param}.tsv").read_text().splitlines()[1:]]
    logits = np.array([[float(x) for x in row[2].split()] for row in rows])
    gold = np.zeros(logits.shape, bool)
    for i, row in enumerate(rows):
        gold[i, [int(t) for t in row[1].split()]] = True
    return logits, gold, expected


@pytest.mark.parametrize("rule", ["positive", "positive_or_top"])
def test_equals_the_released_scores(golden, rule) -> None:
    logits, gold, expected = golden
    want = expected["expected"][rule]
    predicted = predicted_types(logits, rule)
    assert [np.flatnonzero(row).tolist() for row in predicted] == want["predictions"]
    scores = typing_scores(predicted, gold, macro="ernie")
    assert scores.strict_accuracy == pytest.approx(want["strict_accuracy"], abs=1e-12)
    assert round(scores.strict_accuracy * len(gold)) == want["exact_matches"]
    assert scores.without_prediction == want["rows_without_prediction"]
    for name in ("loose_macro", "loose_micro"):
        ours = getattr(scores, name)
        assert (ours.precision, ours.recall, ours.f1) == pytest.approx(
            tuple(want[name][k] for k in ("precision", "recall", "f1")), abs=1e-12
        )


def test_nothing_predicted_equals_the_release(golden) -> None:
    _, gold, expected = golden
    scores = typing_scores(np.zeros_like(gold), gold, macro="ernie")
    for name, want in expected["expected"]["nothing_predicted"].items():
        pair = getattr(scores, name)
        assert [pair.precision, pair.recall, pair.f1] == want


def test_the_types_of_open_entity_are_the_releases(shared: Path) -> None:
    expected = json.loads((shared / "golden/typing_and_relation_metrics/open_entity_expected.json").read_text())
    assert expected["types"] == [*OPEN_ENTITY]


def plain_loop(predicted, gold):
    """Choi et al.'s convention, example by example."""
    precisions, recalls = [], []
    for p, g in zip(predicted, gold, strict=True):
        p, g = set(np.flatnonzero(p)), set(np.flatnonzero(g))
        if p:
            precisions.append(len(p & g) / len(p))
        if g:
            recalls.append(len(p & g) / len(g))
    return sum(precisions) / len(precisions), sum(recalls) / len(recalls)


def test_open_type_macro_divides_by_the_examples_with_a_prediction() -> None:
    rng = np.random.default_rng(0)
    predicted, gold = rng.random((60, 7)) < 0.2, rng.random((60, 7)) < 0.3
    scores = typing_scores(predicted, gold)
    assert (scores.loose_macro.precision, scores.loose_macro.recall) == pytest.approx(plain_loop(predicted, gold))
    assert scores.without_prediction > 0
    assert scores.loose_macro.precision > typing_scores(predicted, gold, macro="ernie").loose_macro.precision
    assert scores.macro == "open_type"


@pytest.mark.parametrize("macro", ["open_type", "ernie"])
def test_nothing_predicted_is_zero(macro) -> None:
    scores = typing_scores(np.zeros((4, 3)), np.ones((4, 3)), macro=macro)
    assert (scores.loose_macro.f1, scores.loose_micro.f1, scores.strict_accuracy) == (0, 0, 0)


def test_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(2, 4\)"):
        typing_scores(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="at least one"):
        typing_scores(np.zeros((0, 3)), np.zeros((0, 3)))

"""Relation metrics against the released scripts' numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kg.metrics.relations import relation_scores
from workbench.metrics.classes import class_scores


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "golden/typing_and_relation_metrics"


@pytest.fixture(scope="module")
def tacred(folder: Path) -> tuple[list[str], list[str]]:
    rows = [line.split("\t") for line in (folder / "tacred.tsv").read_text().splitlines()[1:]]
    return [row[2] for row in rows], [row[1] for row in rows]


@pytest.mark.parametrize("case", ["", "all_NA_predicted", "all_NA_gold"])
def test_tacred_equals_both_released_scorers(folder: Path, tacred, case: str) -> None:
    expected = json.loads((folder / "tacred_expected.json").read_text())
    predicted, gold = tacred
    if case:
        expected = expected[case]
        nothing = ["NA"] * len(gold)
        predicted, gold = (nothing, gold) if case == "all_NA_predicted" else (predicted, nothing)
    official = relation_scores(predicted, gold, negative="NA")
    scorer = expected["scorer"]
    assert (official.precision, official.recall, official.f1) == pytest.approx(
        (scorer["precision"], scorer["recall"], scorer["f1"]), abs=1e-12
    )
    ernie = relation_scores(predicted, gold, negative="NA", empty_precision=0.0)
    script = expected["eval_script"]
    assert (ernie.accuracy, ernie.precision, ernie.recall, ernie.f1) == pytest.approx(
        (script["acc"], script["micro_p"], script["micro_r"], script["micro_f1"]), abs=1e-12
    )


def test_fewrel_accuracy(folder: Path) -> None:
    expected = json.loads((folder / "fewrel_expected.json").read_text())
    rows = [line.split("\t") for line in (folder / "fewrel.tsv").read_text().splitlines()[1:]]
    logits = np.array([[float(x) for x in row[2].split()] for row in rows])
    gold = np.array([int(row[1]) for row in rows])
    assert logits.argmax(1).tolist() == expected["predictions"]
    found = class_scores(logits.argmax(1), gold)
    assert found["accuracy"] == pytest.approx(expected["accuracy"], abs=1e-12)


def test_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="1 predictions for 2"):
        relation_scores(["a"], ["a", "b"], negative="NA")

"""Relation metrics against the released scripts' numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kg.metrics.relation_scores import macro_f1, relation_scores
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
    negative = json.loads((folder / "config.json").read_text())["no_relation"]
    predicted, gold = tacred
    if case:
        expected = expected[case]
        nothing = [negative] * len(gold)
        predicted, gold = (nothing, gold) if case == "all_NA_predicted" else (predicted, nothing)
    official = relation_scores(predicted, gold, negative)
    scorer = expected["scorer"]
    assert (official.precision, official.recall, official.f1) == pytest.approx(
        (scorer["precision"], scorer["recall"], scorer["f1"]), abs=1e-12
    )
    ernie = relation_scores(predicted, gold, negative, empty_precision=0.0)
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
    assert round(found["accuracy"] * len(gold)) == expected["correct"]
    names = [[f"P{row}" for row in rows] for rows in (logits.argmax(1), gold)]
    micro, scorer = relation_scores(*names, negative="NA"), expected["scorer_without_NA"]
    assert (micro.precision, micro.recall, micro.f1) == pytest.approx(
        (scorer["precision"], scorer["recall"], scorer["f1"]), abs=1e-12
    )


def test_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="1 predictions for 2"):
        relation_scores(["a"], ["a", "b"], negative="NA")


NINE = ["C-E", "C-W", "C-C", "E-D", "E-O", "I-A", "M-C", "M-T", "P-P", "Other"]
PUBLISHED = """
296 0 0 0 9 1 0 1 2 15 4
2 209 5 3 1 9 13 5 2 32 31
0 4 160 10 2 0 0 1 0 11 4
0 2 10 260 0 0 0 2 1 16 1
2 1 0 12 221 1 0 1 3 16 1
0 4 1 2 2 101 1 3 9 31 2
0 6 0 0 2 3 195 4 2 20 1
1 2 0 2 0 0 3 228 3 19 3
4 4 2 1 9 10 0 5 167 24 5
20 25 25 25 32 20 39 39 26 203 0
"""
"""A table of confusions that the official scorer printed for a system on the test set: rows gold, columns predicted, in
the last column those whose relation is right and whose direction is wrong. It printed a macro F1 of 79.05 and a micro
F1 of 79.99 below it."""


def semeval() -> tuple[list[str], list[str]]:
    """Predictions and gold relations that give the published table; directions alternate."""
    predicted, gold = [], []
    for true, line in zip(NINE, PUBLISHED.split("\n")[1:], strict=False):
        *counts, turned = map(int, line.split())
        for found, count in zip(NINE, counts, strict=True):
            for i in range(count):
                here, there = ("(e1,e2)", "(e2,e1)")[:: 1 if i % 2 else -1]
                gold.append(true if true == "Other" else true + here)
                same = here if found == true or i % 3 else there
                predicted.append(found if found == "Other" else found + same)
        gold += [f"{true}(e1,e2)"] * turned
        predicted += [f"{true}(e2,e1)"] * turned
    return predicted, gold


def test_semeval_equals_the_official_scorers_print() -> None:
    predicted, gold = semeval()
    assert len(gold) == 2717
    assert round(100 * macro_f1(predicted, gold, "Other"), 2) == 79.05
    assert round(100 * relation_scores(predicted, gold, "Other").f1, 2) == 79.99
    assert round(100 * relation_scores(predicted, gold, "Other").accuracy, 2) == 75.08


def official(predicted: list[str], gold: list[str]) -> float:
    """The scorer's rules by its own account: a table of confusions of relations, next to it a count of right relations
    with the wrong direction, which are added to what was predicted and are no hits."""
    names = sorted({name.partition("(")[0] for name in [*predicted, *gold]})
    table, turned = np.zeros((len(names), len(names))), np.zeros(len(names))
    for ours, theirs in zip(predicted, gold, strict=True):
        row, column = (names.index(name.partition("(")[0]) for name in (theirs, ours))
        if row == column and ours != theirs:
            turned[row] += 1
        else:
            table[row, column] += 1
    shares = []
    for i, name in enumerate(names):
        if name != "Other":
            proposed, actual = table[:, i].sum() + turned[i], table[i].sum() + turned[i]
            precision = table[i, i] / proposed if proposed else 0
            recall = table[i, i] / actual if actual else 0
            shares.append(2 * precision * recall / (precision + recall) if precision + recall else 0)
    return float(np.mean(shares))


@pytest.mark.parametrize("seed", range(5))
def test_semeval_equals_the_scorers_rules(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = ["Other", *(f"{name}{way}" for name in ("A", "B", "C") for way in ("(e1,e2)", "(e2,e1)"))]
    predicted, gold = (rng.choice(classes, 40).tolist() for _ in "pg")
    assert macro_f1(predicted, gold, "Other") == pytest.approx(official(predicted, gold), abs=1e-12)


def test_nothing_but_the_negative_class_has_no_f1() -> None:
    assert macro_f1(["Other"], ["Other"], "Other") == 0

"""The losses of those who know nothing of the text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.chance import LabelCounts, chance
from kg.lexicons.supersense_table import SupersenseTable
from kg.objectives.dea import Dea
from kg.objectives.entity_linking import EntityLinking
from kg.objectives.supersense import Supersense
from workbench.objectives.nsp import Nsp
from workbench.pretraining.objective import Objective


def seen(*labels: int, candidates: int = 0) -> LabelCounts:
    found = LabelCounts()
    more = {"candidates": np.arange(candidates)} if candidates else {}
    found.add({"labels": np.array(labels), **more})
    return found


def test_decisions_have_the_entropy_of_their_frequencies() -> None:
    found = chance(Nsp(), seen(*[0] * 900, *[1] * 300), seen(0, 0, 0, 1, -100), 50)
    assert found == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), rel=1e-3)


def test_labels_count_by_their_weights() -> None:
    asked = LabelCounts()
    asked.add({"labels": np.array([0, 1]), "weights": np.array([0.5, 0.25])})
    assert chance(Nsp(), seen(0, 1), asked, 50) == pytest.approx(0.75 * math.log(2) / 2)


class Tokens(Objective):
    predicts = "tokens"


def test_a_token_that_training_did_not_have_counts_among_the_vocabulary() -> None:
    assert chance(Tokens(), seen(3, 3, 3, 4), seen(7), 50) == pytest.approx(math.log(54))


def test_candidates_of_the_micro_batch_are_alike() -> None:
    found = seen(0, 1, 2, candidates=4)
    found.add({"labels": np.array([5]), "candidates": np.arange(16)})
    assert chance(Dea(), seen(0), found, 50) == pytest.approx((3 * math.log(4) + math.log(16)) / 4)


def test_what_asks_for_nothing_has_no_chance() -> None:
    assert chance(Nsp(), seen(0), seen(), 50) is None


def linked(*mentions: list[int]) -> LabelCounts:
    """Mentions with their candidates, 1 where one is right."""
    found = LabelCounts()
    found.add({"labels": np.concatenate(mentions), "candidates": np.array([*map(len, mentions)])}, by_mention=True)
    return found


def test_candidates_of_a_mention_are_alike() -> None:
    asked = linked([0, 1], [0, 0, 0], [1, 0, 0, 0])
    assert chance(EntityLinking(), LabelCounts(), asked, 50) == pytest.approx((math.log(2) + math.log(4)) / 2)
    margin = chance(EntityLinking(loss="margin", margin=0.2), LabelCounts(), asked, 50)
    assert margin == pytest.approx(0.4 * 2 / 9)  # all at -0.2: of nine candidates, two lose 0.4 each


def test_supersenses_have_their_shares_of_words() -> None:
    allowed = np.array([[True, False], [True, True]])
    senses = Supersense(SupersenseTable(("noun.act", "verb.body"), allowed))
    found = chance(senses, seen(0, 0, 1, 1), seen(1, 0), 50)
    first = 4 / 6  # (2 + 2 / 2 + 1) of (4 + 2)
    either = -math.log(1) - (math.log(first) + math.log(1 - first)) / 2
    assert found == pytest.approx((either - 2 * math.log(first)) / 2)


def test_polarities_count_next_to_parts_of_speech() -> None:
    found = LabelCounts()
    found.add({"labels": np.array([0, 0, 1, 1]), "polarities": np.array([2, 2, 2, 0])})
    parts = -math.log(3 / 6)
    polarities = -(3 * math.log(3.03 / 4.06) + math.log(1.03 / 4.06)) / 4  # smoothed by 0.03
    assert chance(Nsp(), found, found, 50) == pytest.approx(parts + polarities)

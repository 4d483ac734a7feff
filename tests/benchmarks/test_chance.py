"""The losses of those who know nothing of the text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.chance import Seen, chance
from kg.objectives.dea import Dea
from workbench.objectives.nsp import Nsp
from workbench.tasks.objective import Objective


def seen(*labels: int, candidates: int = 0) -> Seen:
    found = Seen()
    more = {"candidates": np.arange(candidates)} if candidates else {}
    found.add({"labels": np.array(labels), **more})
    return found


def test_decisions_have_the_entropy_of_their_frequencies() -> None:
    found = chance(Nsp(), seen(*[0] * 900, *[1] * 300), seen(0, 0, 0, 1, -100), 50)
    assert found == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), rel=1e-3)


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

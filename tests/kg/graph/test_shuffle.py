"""The graph of false facts: every count stays, the truth goes as far as it can."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kg.graph.shuffle import shuffle_tails
from kg.graph.store import GraphStore
from workbench.components.build_context import noted


def people(count: int) -> np.ndarray:
    """[3, triples]: heads with three relations: a gender (four of five share it), a country of six, some friends."""
    rng = np.random.default_rng(0)
    heads = np.arange(10, 10 + count)
    rows = [(h, 0, int(g)) for h, g in zip(heads, rng.random(count) < 0.2, strict=True)]
    rows += [(h, 1, int(2 + c)) for h, c in zip(heads, rng.integers(0, 6, count), strict=True)]
    rows += {(h, 2, int(rng.integers(10, 10 + count))) for h in heads for _ in range(3)}
    return np.array(sorted(rows), np.int32).T


def key(heads: np.ndarray, relations: np.ndarray, tails: np.ndarray) -> list[tuple[int, int, int]]:
    return list(zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_what_can_be_false_is_false_and_nothing_is_repeated(seed: int) -> None:
    heads, relations, tails = people(300)
    found = shuffle_tails(heads, relations, tails, seed)
    truth, made = set(key(heads, relations, tails)), key(heads, relations, found.tails)
    assert len(set(made)) == len(made)
    assert Counter((r, t) for _, r, t in made) == Counter((r, t) for _, r, t in truth)
    true = Counter(r for h, r, t in made if (h, r, t) in truth)
    common = Counter(tails[relations == 0].tolist()).most_common(1)[0][1]
    assert true[0] <= 2 * common - 300 + 15, "a common tail goes to all heads that lack it"
    assert true[1] <= 3
    assert true[2] <= 3
    assert found.true_share == pytest.approx(true.total() / len(made))
    assert np.array_equal(found.tails, shuffle_tails(heads, relations, tails, seed).tails)
    assert not np.array_equal(found.tails, shuffle_tails(heads, relations, tails, seed + 1).tails)


def test_tails_go_far() -> None:
    """No tail has a better chance than others to come to a head: each of 40 heads meets most of the other tails."""
    heads, relations, tails = np.arange(40), np.zeros(40, np.int64), np.arange(40, 80)
    seen = np.stack([shuffle_tails(heads, relations, tails, seed).tails for seed in range(120)])
    assert not (seen == tails).any()
    assert min(len(set(column.tolist())) for column in seen.T) > 25


def test_the_share_that_stayed_true_is_noted_with_what_a_run_reads(tmp_path) -> None:
    triples = [(f"h{i}", "r", "common" if i < 6 else f"t{i}") for i in range(8)]
    store = GraphStore.build(triples, tmp_path / "g")
    with noted() as read:
        false = store.under("shuffled-kg", 3)
    share = np.mean([store.has(*triple) for triple in false.triples()])
    assert false.true_share == share == 0.5
    (reported,) = read["truth that is left under shuffled-kg"].values()
    assert reported.startswith(
        "seed 3, 50.00 % of the triples are still true; the true tail is guessed from what is shown in "
    )

"""What a control leaves of the truth: a code is found, chance is not called one."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kg.graph.patterns import remaining_patterns
from kg.graph.permutation import PermutedGraph
from kg.graph.store import TO_DO, GraphStore
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError

SHARES = (0.53, 0.37, 0.06, 0.04)


@pytest.fixture
def classes(tmp_path: Path) -> GraphStore:
    """2,000 heads, each of one of four classes."""
    drawn = np.random.default_rng(0).choice(4, 2000, p=SHARES)
    return GraphStore.build([(f"h{i}", "class", f"c{c}") for i, c in enumerate(drawn)], tmp_path / "g")


def by_hand(true: list[int], shown: list[int], folds: int = 5) -> float:
    """As plain loops: each guessed by counts of the other folds."""
    right = 0
    for fold in range(folds):
        counts: dict[int, Counter[int]] = {}
        for i, (t, s) in enumerate(zip(true, shown, strict=True)):
            if i % folds != fold:
                counts.setdefault(s, Counter())[t] += 1
        asked = range(fold, len(true), folds)
        right += sum(counts[shown[i]].most_common(1)[0][0] == true[i] for i in asked)
    return right / len(true)


def test_few_tails_are_detected_by_the_shuffled_graph_and_not_by_others(classes: GraphStore) -> None:
    shuffled, permuted = classes.under("shuffled-kg", 0), classes.under("permuted-kg", 0)
    assert shuffled.left is not None
    assert permuted.left is not None
    majority = shuffled.left.overall.majority
    assert majority == pytest.approx(0.53, abs=0.03)
    assert shuffled.left.overall.right > 0.8, "the false tail determines the true one"
    found = by_hand(classes.triple_rows[:, 2].tolist(), shuffled.triple_rows[:, 2].tolist())
    assert shuffled.left.overall.right == pytest.approx(found, abs=0.01)
    for left in (permuted.left, PermutedGraph(classes, "out", 0).left):
        assert left.overall.right == pytest.approx(majority, abs=0.01)
    with noted() as read:
        classes.report_blank("mentions-only", 0)
    (reported,) = read["truth that is left under mentions-only"].values()
    share = f"{100 * majority:.1f} %"
    assert reported == f"seed 0, the true tail is guessed from what is shown in {share}, without it in {share}"


def test_tails_that_occur_once_say_nothing() -> None:
    """In-sample each would determine its own."""
    tails = np.arange(500)
    left = remaining_patterns(np.zeros(500, np.int64), tails, np.roll(tails, 1))
    assert left.overall.right == left.overall.majority == 0


def test_relations_are_distinguished() -> None:
    """One is a code, in the other the same values reveal nothing."""
    rng = np.random.default_rng(1)
    relations = np.repeat([3, 7], 400)
    true = rng.integers(0, 2, 800)
    shown = np.where(relations == 3, 1 - true, rng.integers(0, 2, 800))
    left = remaining_patterns(relations, true, shown)
    assert left.relations[3].right == 1
    assert left.relations[7].right == pytest.approx(0.5, abs=0.06)
    assert left.overall.right == pytest.approx((1 + left.relations[7].right) / 2)


def test_permuted_tails_stay_in_their_relation(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    triples = {(f"h{rng.integers(200)}", f"r{i % 3}", f"t{rng.integers(30)}") for i in range(900)}
    store = GraphStore.build(sorted(triples), tmp_path / "g")
    false = store.under("permuted-kg", 1)
    for column in ([0, 1], [1, 2]):
        before = Counter(map(tuple, store.triple_rows[:, column].tolist()))
        assert Counter(map(tuple, false.triple_rows[:, column].tolist())) == before
    assert false.true_share == pytest.approx(np.mean([store.has(*triple) for triple in false.triples()]))
    assert np.array_equal(store.under("permuted-kg", 1).triple_rows, false.triple_rows)
    assert not np.array_equal(store.under("permuted-kg", 2).triple_rows, false.triple_rows)
    assert store.under("question-only", 1) is store is store.under(None, 1)
    for control, advice in TO_DO.items():
        with pytest.raises(WorkbenchError, match=f"control {control}: .*is the truth; {re.escape(advice)}"):
            store.under(control, 1)
    assert GraphStore.build([], tmp_path / "empty").under("permuted-kg", 0).num_triples == 0

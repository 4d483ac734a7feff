"""Every mutant exchanges one line that is there, and there are five for each of eight modules."""

from __future__ import annotations

from collections import Counter

from tests.mutants import MUTANTS, ROOT, TESTS


def test_every_mutant_exchanges_one_line() -> None:
    for mutant in MUTANTS:
        source = (ROOT / "workbench" / f"{mutant.module}.py").read_text("utf-8")
        assert source.count(mutant.before) == 1, f"{mutant.module}: {mutant.before}"
    assert set(Counter(mutant.module for mutant in MUTANTS).values()) == {5}
    assert all((ROOT / place).exists() for places in TESTS.values() for place in places)

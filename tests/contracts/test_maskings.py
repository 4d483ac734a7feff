"""Contracts of the masking strategies, on documents."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.case_finder import make, over
from tests.contracts.material import draws, plain, selected, small_samples, text_samples, tokenizer
from workbench.components.building import build
from workbench.core.keyed import generator
from workbench.sequences.sequence import Sample, Sequence


def documents(samples: list[Sample]) -> list[Sequence]:
    made: list[Sequence] = build("builder", "document", "", tokenizer=tokenizer(), max_length=512)(samples, draws())
    return made


@over("masking")
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_masked_rate_is_within_binomial_bounds(name: str, rate: float) -> None:
    masking, sequences = make("masking", name), documents(text_samples(250))
    free = sum(int((~s.streams["text"]["special"]).sum()) for s in sequences)
    chosen = sum(
        len(rows) for i, s in enumerate(sequences) for rows in selected(masking, s, "text", rate, generator(i))
    )
    assert abs(chosen - rate * free) < 4 * np.sqrt(rate * (1 - rate) * free), (chosen, rate * free)


@over("masking")
def test_masking_strategies_select_free_rows_once(name: str) -> None:
    masking = make("masking", name)
    rng = np.random.default_rng(0)
    for i, sequence in enumerate(documents(text_samples(40))):
        text = sequence.streams["text"]
        text["taken"] = rng.random(len(text["taken"])) < 0.3
        before = plain(sequence)
        for rate in (0.01, 0.15, 0.9, 1.0):
            rows = np.concatenate(selected(masking, sequence, "text", rate, generator(i)))
            assert len(rows) == len(np.unique(rows)) > 0
            assert not (text["special"] | text["taken"])[rows].any()
        assert plain(selected(masking, sequence, "text", 0.2, generator(i, 1))) == plain(
            selected(masking, sequence, "text", 0.2, generator(i, 1))
        )
        assert plain(sequence) == before


@over("masking")
def test_masking_strategies_on_empty_and_one_token(name: str) -> None:
    masking = make("masking", name)
    empty, one, blank = documents(small_samples())
    assert selected(masking, empty, "text", 0.15, generator(0)) == []
    assert selected(masking, blank, "text", 0.15, generator(0)) == []
    one.streams["text"]["special"][2:] = True  # "river" may be several tokens: leave one
    assert [rows.tolist() for rows in selected(masking, one, "text", 0.15, generator(0))] == [[1]]
    one.streams["text"]["taken"][:] = True
    assert selected(masking, one, "text", 0.15, generator(0)) == []

"""The masking strategy `span`, compared with draws of SpanBERT's published code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.contracts.cases import MaskingCase
from workbench.sequences.maskings import FreeWords, merged
from workbench.sequences.selection import RowGroups

CASE = MaskingCase()


def examples(shared: Path) -> list[dict[str, Any]]:
    """The tokens that the published code has masked, with its draws."""
    return json.loads((shared / "golden/spanbert/masking/examples.json").read_text())


def test_every_released_span_is_one_that_the_masking_strategy_may_draw(shared: Path) -> None:
    """In the order in which they were drawn: some anchor that was free and some length give its rows, less what the
    budget cuts off; and what overlaps or touches is one span."""
    for example in examples(shared):
        words = np.cumsum([True, *example["word_starts"][1:]])
        hidden = np.zeros(len(words), np.bool_)
        spans = FreeWords(~hidden, words, np.zeros(len(words), np.int64))
        lengths = range(example["settings"]["span_lower"], example["settings"]["span_upper"] + 1)
        groups = []
        for first, last in example["sampled_spans"]:
            left = example["budget"] - int(hidden.sum())
            anchors = np.flatnonzero(~hidden)
            candidates = [spans.spans(np.array([a]), np.array([n])).rows for a in anchors for n in lengths]
            free = [rows[~hidden[rows]][:left] for rows in candidates]
            released = [row for row in range(first, last + 1) if not hidden[row]]
            assert released in [rows.tolist() for rows in free]
            hidden[released] = True
            groups.append(np.array(released))
        sizes = [len(rows) for rows in groups]
        drawn = RowGroups(np.concatenate(groups), sizes, np.zeros(len(groups)))
        [found] = merged(drawn).by_sequence(np.zeros(1, np.int64))
        assert [[int(rows[0]), int(rows[-1])] for rows in found] == example["merged_spans"]
        assert np.concatenate(found).tolist() == example["masked_positions"]

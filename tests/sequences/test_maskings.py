"""Masking strategies: what is selected together, and in which proportions."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from tests.contracts.material import selected
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Numbers, generator
from workbench.sequences.maskings import (
    EntityMasking,
    FieldMasking,
    FreeWords,
    TokenMasking,
    WholeWordMasking,
    length_distribution,
)
from workbench.sequences.maskings import SpanMasking as SpanMasking
from workbench.sequences.sequence import Sequence, Span, text_fields


def sequence(words, spans=(), mask_spans=()):
    """[CLS] tokens [SEP]; `words` are the word numbers of the tokens between."""
    n = len(words) + 2
    special = np.zeros(n, np.bool_)
    special[[0, -1]] = True
    fields = text_fields(np.arange(100, 100 + n), word_ids=np.array([-1, *words, -1]), special=special)
    return Sequence({"text": fields}, (0,), spans=list(spans), mask_spans=list(mask_spans))


def test_phrases_are_taken_as_far_as_they_fit_and_then_tokens():
    """As for entities, of other stretches; facts' objects go beyond the rate."""
    spans = [Span(1 + 10 * i, 5 + 10 * i, "") for i in range(10)]
    one = sequence(list(range(100)), spans, mask_spans=spans)
    for seed in range(20):
        for masking in (FieldMasking(beyond=False), EntityMasking()):
            assert sorted(map(len, selected(masking, one, "text", 0.15, generator(seed)))) == [1, 1, 1, 4, 4, 4]
        assert sum(map(len, selected(FieldMasking(), one, "text", 0.15, generator(seed)))) == 40


def test_lengths_equal_spanbert(shared):
    golden = json.loads((shared / "golden" / "spanbert" / "masking" / "length_distribution.json").read_text())
    np.testing.assert_allclose(length_distribution(0.2, 10), golden["lower=1,upper=10,p=0.2"], rtol=1e-12)
    np.testing.assert_allclose(length_distribution(0.5, 3), golden["lower=1,upper=3,p=0.5"], rtol=1e-12)


def plain_loop_span(words, hideable, hidden, anchor, length, left):
    """SpanBERT's rule by hand: from the anchor's word, whole words to the right, at most `left` tokens more."""
    start = anchor
    while hideable[start - 1] and words[start - 1] == words[anchor]:
        start -= 1
    rows, seen = [], set()
    for row in range(start, len(words)):
        if not hideable[row]:
            break
        seen.add(words[row])
        if len(seen) > length or len(rows) == left:
            break
        if not hidden[row]:
            rows.append(row)
    return rows


def test_spans_are_whole_words_of_the_drawn_length():
    """The masking strategy with the same draws as a plain loop returns the same spans."""
    rng = np.random.default_rng(0)
    words = np.sort(rng.integers(0, 120, 250)).tolist()
    one = sequence(words)
    for seed in range(60):
        groups = selected(SpanMasking(), one, "text", 0.3, generator(seed))
        draw = Numbers.of(generator(seed))
        hideable = ~one.streams["text"]["special"]
        hidden = np.zeros(len(hideable), np.bool_)
        expected = 0.3 * hideable.sum()
        left = int(expected) + int(draw.random()[0] < expected - int(expected))
        cumulative = np.cumsum(length_distribution(0.2, 10))
        candidates = np.flatnonzero(hideable)
        while left > 0:
            length = int(np.searchsorted(cumulative, draw.random()[0])) + 1
            anchor = int(candidates[draw.integers(len(candidates))[0]])
            if not hidden[anchor]:
                listed = one.streams["text"]["word_ids"].tolist()
                rows = plain_loop_span(listed, hideable, hidden, anchor, length, left)
                hidden[rows] = True
                left -= len(rows)
        stretches = "".join("x" if here else " " for here in hidden).split()
        assert [len(rows) for rows in groups] == [len(stretch) for stretch in stretches]
        assert np.concatenate(groups).tolist() == np.flatnonzero(hidden).tolist()


def test_span_lengths_follow_the_distribution(monkeypatch):
    """Of the first span that is drawn: later ones may meet those before, or the end of the budget."""
    one, spans, drawn = sequence(list(range(4000))), FreeWords.spans, []
    monkeypatch.setattr(FreeWords, "spans", lambda *of: drawn.append(spans(*of)) or drawn[-1])
    counts = np.zeros(11)
    for seed in range(300):
        drawn.clear()
        selected(SpanMasking(), one, "text", 0.01, generator(seed))
        counts[drawn[0].sizes] += 1
    expected = length_distribution(0.2, 10) * counts.sum()
    assert (np.abs(counts[1:] - expected) < 4 * np.sqrt(expected)).all()
    assert length_distribution(0.2, 10) @ np.arange(1, 11) == pytest.approx(3.8, abs=0.01)  # the paper's mean


def test_spans_stop_at_special_tokens():
    one = sequence([0, 1, 2, 3, 4, 5, 6, 7])
    one.streams["text"]["special"][4] = True
    for seed in range(40):
        for rows in selected(SpanMasking(p=0.05), one, "text", 0.5, generator(seed)):
            assert 4 not in rows
            assert max(rows) < 4 or min(rows) > 4


def test_whole_words_are_whole():
    words = [0, 0, 1, 2, 2, 2, 3, 4, 4, 5, 6, 6, 6, 6]
    one = sequence(words)
    ids = one.streams["text"]["word_ids"]
    for seed in range(50):
        for rows in selected(WholeWordMasking(), one, "text", 0.3, generator(seed)):
            assert rows.tolist() == np.flatnonzero(ids == ids[rows[0]]).tolist()


def test_a_single_long_word_is_selected_whole():
    [rows] = selected(WholeWordMasking(), sequence([0] * 6), "text", 0.15, generator(0))
    assert rows.tolist() == [1, 2, 3, 4, 5, 6]


def test_words_next_to_each_other_with_one_number_are_two_where_something_lies_between():
    one = sequence([0, 0, 0, 0])
    one.streams["text"]["taken"][2] = True
    groups = selected(WholeWordMasking(), one, "text", 1.0, generator(0))
    assert sorted(rows.tolist() for rows in groups) == [[1], [3, 4]]


def test_entities_come_first_and_whole():
    mentions = [Span(2, 5, "a"), Span(8, 10, "b"), Span(4, 6, "overlaps a")]
    chosen = set()
    for seed in range(60):
        one = sequence(list(range(30)), spans=mentions)
        groups = selected(EntityMasking(), one, "text", 0.2, generator(seed))
        assert sum(len(rows) for rows in groups) in (6, 7)
        whole = [rows.tolist() for rows in groups if len(rows) > 1]
        assert whole
        for rows in whole:
            assert rows in ([2, 3, 4], [8, 9], [4, 5])
        chosen |= {tuple(rows) for rows in whole}
        covered = np.concatenate(groups)
        assert len(np.unique(covered)) == len(covered)
    assert chosen == {(2, 3, 4), (8, 9), (4, 5)}


def test_entities_without_mentions_are_tokens():
    groups = selected(EntityMasking(), sequence(list(range(40))), "text", 0.15, generator(0))
    assert [len(rows) for rows in groups] == [1] * 6


def test_field_is_always_whole_or_by_probability():
    masks = [Span(3, 9, ""), Span(12, 14, "")]
    one = sequence(list(range(20)), mask_spans=masks)
    for seed in range(20):
        groups = selected(FieldMasking(), one, "text", 0.15, generator(seed))
        assert sorted(rows.tolist() for rows in groups) == [[3, 4, 5, 6, 7, 8], [12, 13]]
    some = [
        len(rows) for seed in range(200) for rows in selected(FieldMasking(0.5), one, "text", 0.15, generator(seed))
    ]
    assert 70 < some.count(6) < 130
    more = selected(FieldMasking(), one, "text", 0.6, generator(0))
    assert sum(len(rows) for rows in more) == 12
    never = selected(FieldMasking(0.0), one, "text", 0.15, generator(0))
    assert all(len(rows) == 1 for rows in never)


def test_token_positions_are_uniform():
    one = sequence(list(range(20)))
    counts = np.zeros(22)
    for seed in range(3000):
        for rows in selected(TokenMasking(), one, "text", 0.15, generator(seed)):
            counts[rows] += 1
    assert counts[0] == counts[-1] == 0
    assert np.abs(counts[1:-1] - 450).max() < 4.5 * np.sqrt(450)


def test_the_budget_is_the_rate_on_average():
    one = sequence(list(range(17)))
    sizes = [len(selected(TokenMasking(), one, "text", 0.15, generator(seed))) for seed in range(4000)]
    assert set(sizes) == {2, 3}
    assert abs(np.mean(sizes) - 2.55) < 0.04


def test_options_are_checked():
    with pytest.raises(WorkbenchError, match=r"p = 1\.5; allowed: a number above 0, below 1"):
        build("masking", {"masking": "span", "p": 1.5})
    with pytest.raises(WorkbenchError, match="probability = 2"):
        build("masking", {"masking": "field", "probability": 2})


def test_selected_groups_do_not_overlap_for_spans():
    one = sequence(list(range(100)))
    rows = np.concatenate(selected(SpanMasking(), one, "text", 0.9, generator(1)))
    assert len(rows) == len(np.unique(rows)) == 90
    assert all(b - a >= 1 for a, b in pairwise(np.sort(rows)))

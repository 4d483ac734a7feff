"""Two marked mentions in a text: where the markers go, what stays, what is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kg.sequences.builders.marked_pair import MarkedPairBuilder
from tests.contracts.cases import BuilderCase
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.builder import TRUNCATED
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer, train_tokenizer

CASE = BuilderCase(
    {"head": ".", "tail": "q"},
    {"special": "the markers are ordinary tokens", "small": "it needs a head and a tail"},
)
TEXT = "the town of Lima lies in Peru , far away from all the rivers of the north"
HEAD, TAIL = [12, 16], [25, 29]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer([f"{TEXT} # $ ,"] * 3, "wordpiece", 200))


def sample(text: str = TEXT, head: list[int] = HEAD, tail: list[int] = TAIL, **more: Any) -> dict[str, Any]:
    marks = sorted([[*head, "head"], [*tail, "tail"]])
    return {"key": "a", "corpus": "c", "text": text, "marks": marks, "labels": {"relation": "in"}, **more}


def built(tokenizer: Tokenizer, given: dict[str, Any], max_length: int = 64) -> tuple[Sequence, MarkedPairBuilder]:
    builder = MarkedPairBuilder(tokenizer, max_length)
    [sequence] = builder([given], Draws(0, "task", "build", number=(0,)))
    return sequence, builder


def words(tokenizer: Tokenizer, sequence: Sequence) -> str:
    ids = sequence.streams["text"]["input_ids"][1:-1].tolist()
    return tokenizer.decode(ids)


def rows_of(tokenizer: Tokenizer, sequence: Sequence, marker: str) -> list[int]:
    [wanted] = tokenizer.encode(marker).ids.tolist()
    return np.flatnonzero(sequence.streams["text"]["input_ids"] == wanted).tolist()


@pytest.mark.parametrize(("head", "tail"), [(HEAD, TAIL), (TAIL, HEAD)])
def test_markers_stand_around_both(tokenizer: Tokenizer, head: list[int], tail: list[int]) -> None:
    sequence, _ = built(tokenizer, sample(head=head, tail=tail))
    stream = sequence.streams["text"]
    for marker, place in (("#", head), ("$", tail)):
        first, last = rows_of(tokenizer, sequence, marker)
        inside = slice(first + 1, last)
        assert stream["char_start"][inside][0] == place[0]
        assert stream["char_end"][inside][-1] == place[1]
        assert stream["special"][[first, last]].all()
        assert not stream["special"][inside].any()
    assert sequence.labels == {"relation": "in"}


def test_everything_else_stays(tokenizer: Tokenizer) -> None:
    sequence, builder = built(tokenizer, sample())
    stream = sequence.streams["text"]
    plain = tokenizer.encode(TEXT)
    kept = ~stream["special"]
    np.testing.assert_array_equal(stream["input_ids"][kept], plain.ids)
    np.testing.assert_array_equal(stream["char_start"][kept], plain.starts)
    np.testing.assert_array_equal(stream["char_end"][kept], plain.ends)
    assert builder.take_dropped() == {}


def test_head_and_tail_are_marks_of_the_sequence(tokenizer: Tokenizer) -> None:
    sequence, _ = built(tokenizer, sample())
    stream = sequence.streams["text"]
    places = {m.name: [stream["char_start"][m.start], stream["char_end"][m.end - 1]] for m in sequence.marks}
    assert places == {"head": HEAD, "tail": TAIL}
    for mark in sequence.marks:
        assert stream["special"][[mark.start - 1, mark.end]].all()


def test_mentions_side_by_side(tokenizer: Tokenizer) -> None:
    text = "Lima Peru"
    sequence, _ = built(tokenizer, sample(text, [0, 4], [5, 9]))
    order = [rows_of(tokenizer, sequence, marker) for marker in "#$"]
    assert order[0][0] < order[0][1] < order[1][0] < order[1][1]


def test_linked_entities_are_rows_of_the_marked_text(tokenizer: Tokenizer) -> None:
    spans = [[*HEAD, "Q2868", 1.0], [*TAIL, "Q419", 1.0]]
    sequence, _ = built(tokenizer, sample(spans=spans))
    stream = sequence.streams["text"]
    places = [[stream["char_start"][s.start], stream["char_end"][s.end - 1]] for s in sequence.spans]
    assert places == [HEAD, TAIL]


def test_a_long_text_keeps_both(tokenizer: Tokenizer) -> None:
    padding = "all the rivers of the north " * 6
    shift = len(padding)
    text = padding + TEXT
    places = [[start + shift, end + shift] for start, end in (HEAD, TAIL)]
    sequence, builder = built(tokenizer, sample(text, *places), max_length=24)
    assert sequence.length("text") == 24
    assert len(rows_of(tokenizer, sequence, "#")) == len(rows_of(tokenizer, sequence, "$")) == 2
    assert builder.take_dropped()[TRUNCATED] > 0


def test_mentions_too_far_apart_are_counted(tokenizer: Tokenizer) -> None:
    text = f"Lima {'all the rivers of the north ' * 6}Peru"
    _, builder = built(tokenizer, sample(text, [0, 4], [len(text) - 4, len(text)]), max_length=20)
    assert builder.take_dropped()["mentions too far apart"] == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (sample(head=[12, 16], tail=[14, 20]), "overlap, or lie outside the text"),
        (sample(tail=[70, 900]), "overlap, or lie outside the text of 73 characters"),
        ({**sample(), "marks": [[0, 3, "head"]]}, "no .marks. of a head and a tail"),
    ],
)
def test_bad_marks_are_refused(tokenizer: Tokenizer, given: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        built(tokenizer, given)


def test_a_marker_that_the_tokenizer_does_not_know_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match="the marker '' is not in the tokenizer's vocabulary"):
        MarkedPairBuilder(tokenizer, 32, head="")
    with pytest.raises(WorkbenchError, match="the marker 'qqq' is not in the tokenizer's vocabulary"):
        MarkedPairBuilder(tokenizer, 32, head="qqq")


def test_one_marker_for_head_and_tail_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match="the marker '#' is that of the head and of the tail"):
        MarkedPairBuilder(tokenizer, 32, head="#", tail="#")

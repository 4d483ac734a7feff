"""Queries and passages as two sequences."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts import material
from tests.contracts.cases import BuilderCase
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.builder import Builder

CASES = {"": BuilderCase({"passages": "twice"}, {"small": "each text is read twice"})}
DRAWS = Draws(0, "task", "it", number=(0,))
SAMPLE = {"key": "1", "draw": (0, 0), "text": "a river", "choices": ["one", "two", "three", "four"], "answer": 2}


def builder(**options: Any) -> Builder:
    return build("builder", {"builder": "text_pair", **options}, "", tokenizer=material.tokenizer(), max_length=32)


def test_the_sides_have_prefixes_streams_and_roles() -> None:
    made = builder(query_prefix="query: ", passage_prefix="passage: ", stream="other")
    query, passage = made([{**SAMPLE, "second": "it is long"}], DRAWS)
    assert (query.role, passage.role) == ("query", "passage")
    assert query.group == passage.group == (0, 0)
    known = made.tokenizer
    for sequence, stream, text in ((query, "text", "query: a river"), (passage, "other", "passage: it is long")):
        assert list(sequence.streams) == [stream]
        assert sequence.streams[stream]["input_ids"].tolist()[1:-1] == known.encode(text).ids.tolist()


def test_one_text_twice() -> None:
    query, passage = builder(passages="twice")([SAMPLE], DRAWS)
    assert query.streams["text"]["input_ids"].tolist() == passage.streams["text"]["input_ids"].tolist()


def test_hard_negatives_are_other_choices_drawn_in_training() -> None:
    made = builder(passages="choices", hard=2)
    right = made.tokenizer.encode("three").ids.tolist()

    def ids(of: Builder, epoch: int) -> list[list[int]]:
        found = of([{**SAMPLE, "draw": (epoch, 0)}], DRAWS)
        assert [each.role for each in found] == ["query", "passage", "negative", "negative"]
        assert found[1].streams["text"]["input_ids"].tolist()[1:-1] == right
        return [each.streams["text"]["input_ids"].tolist()[1:-1] for each in found[2:]]

    first = [made.tokenizer.encode(text).ids.tolist() for text in ("one", "two")]
    assert ids(made.evaluating(), 0) == ids(made.evaluating(), 1) == first
    assert len({str(ids(made, epoch)) for epoch in range(8)}) > 1
    assert len(made.evaluating()([{**SAMPLE, "choices": ["one", "two"], "answer": 0}], DRAWS)) == 3


def test_what_is_missing_is_named() -> None:
    with pytest.raises(WorkbenchError, match="second"):
        builder()([SAMPLE], DRAWS)
    with pytest.raises(WorkbenchError, match="only choices have hard negatives"):
        builder(hard=1)

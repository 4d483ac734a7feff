"""Rows of entities before their mentions, and in their place, against plain lists."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from kg.sequences.transforms.entity_words import EntityWordsTransform
from tests.contracts.cases import TransformCase
from tests.contracts.material import CITIES, draws, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Mark, Sequence, Span, text_fields

TABLE = {f"Q-{city}": row for row, city in enumerate(CITIES)}
OPTIONS = {"table": TABLE, "separator": "o", "max_length": 64}
ADDS = ("text.entity_ids",)
CASES = {
    "": TransformCase(OPTIONS, {"keeps": "rows are put in"}, adds=ADDS),
    "replace": TransformCase({**OPTIONS, "form": "replace"}, {"keeps": "rows are put in"}, adds=ADDS),
}
MENTIONS = [(2, 4, "Q-Hamburg"), (5, 6, "Q-nowhere"), (6, 9, "Q-Paris")]
UNKNOWN, SLASH = tokenizer().id("unk"), int(tokenizer().encode("o").ids[0])


def transform(**options: Any) -> EntityWordsTransform:
    return EntityWordsTransform(tokenizer=tokenizer(), **{**OPTIONS, **options})


def sequence(size: int = 11) -> Sequence:
    text = text_fields(np.arange(20, 20 + size), special=np.isin(np.arange(size), [0, size - 1]))
    spans = [Span(start, end, entity) for start, end, entity in MENTIONS]
    marks = [Mark("head", 2, 4), Mark("both", 3, 8), Mark("after", 9, 10)]
    return Sequence({"text": text}, (0,), "s", spans=spans, marks=marks)


def wanted(form: str) -> tuple[list[int], list[int]]:
    """Token ids and entity numbers, row by row."""
    ids, numbers = list(range(20, 31)), [0] * 11
    for start, end, entity in reversed(MENTIONS):
        if entity in TABLE:
            put = [UNKNOWN, SLASH] if form == "concat" else [UNKNOWN]
            end = start if form == "concat" else end
            ids[start:end], numbers[start:end] = put, [TABLE[entity] + 1, 0][: len(put)]
    return ids, numbers


@pytest.mark.parametrize("form", ["concat", "replace"])
def test_the_rows_are_those_of_the_lists(form: Any) -> None:
    made = transform(form=form)
    (found,) = made([sequence()], draws())
    text = found.streams["text"]
    ids, numbers = wanted(form)
    assert text["input_ids"].tolist() == ids
    assert text["entity_ids"].tolist() == numbers
    assert text["position_ids"].tolist() == list(range(len(ids)))
    put = [row for row, token in enumerate(ids) if token in (UNKNOWN, SLASH) and token < 20]
    assert text["taken"].nonzero()[0].tolist() == put
    assert made.take_dropped() == {"entities without a vector": 1}


def stretches(made: Sequence) -> dict[str, list[int]]:
    """The tokens of each mark, and of each entity."""
    ids = made.streams["text"]["input_ids"]
    found = {mark.name: ids[mark.start : mark.end].tolist() for mark in made.marks}
    return found | {span.entity: ids[span.start : span.end].tolist() for span in made.spans}


def test_stretches_follow_their_mentions() -> None:
    (before,) = transform()([sequence()], draws())
    alongside = {"head": [22, 23], "after": [29], "Q-Hamburg": [22, 23], "Q-Paris": [26, 27, 28], "Q-nowhere": [25]}
    assert stretches(before) == {**alongside, "both": [23, 24, 25, UNKNOWN, SLASH, 26, 27]}
    (inside,) = transform(form="replace")([sequence()], draws())
    one = [UNKNOWN]
    replaced = {"head": one, "Q-Hamburg": one, "Q-Paris": one, "both": [UNKNOWN, 24, 25, UNKNOWN]}
    assert stretches(inside) == {**alongside, **replaced}


def test_a_sequence_without_room_keeps_its_last_mentions_as_they_are() -> None:
    made = transform(max_length=14)
    (found,) = made([sequence()], draws())
    assert found.streams["text"]["entity_ids"].tolist().count(0) == 12
    assert found.length("text") == 13
    assert made.take_dropped()["mentions over max_length"] == 1
    (full,) = transform(max_length=5)([sequence()], draws())
    assert full.length("text") == 11


def test_masked_overlapping_and_doubtful_mentions_are_counted() -> None:
    source = sequence()
    source.spans = [Span(2, 4, "Q-Paris"), Span(2, 3, "Q-Paris"), Span(5, 6, "Q-Paris", 0.1), Span(6, 7, "Q-Paris")]
    source.mask_spans = [Span(6, 8, "")]
    made = transform(min_score=0.3)
    (found,) = made([source], draws())
    assert (found.streams["text"]["entity_ids"] > 0).nonzero()[0].tolist() == [2]
    reasons = ("overlapping mentions", "mentions below min_score", "mentions to be masked")
    assert made.take_dropped() == dict.fromkeys(reasons, 1)


def test_without_knowledge_the_text_is_as_it_was() -> None:
    (found,) = transform(control="no-kg")([sequence()], draws())
    assert found.streams["text"]["input_ids"].tolist() == list(range(20, 31))
    assert not found.streams["text"]["entity_ids"].any()


def test_under_mentions_only_all_entities_have_one_vector() -> None:
    (full,), (alike,) = transform()([sequence()], draws()), transform(control="mentions-only")([sequence()], draws())
    rows = full.streams["text"]["entity_ids"]
    assert len(np.unique(rows)) > 2
    assert np.array_equal(alike.streams["text"]["entity_ids"], rows > 0)


def test_it_travels_to_workers_and_refuses_a_separator_of_several_tokens() -> None:
    (found,) = pickle.loads(pickle.dumps(transform()))([sequence()], draws())
    assert found.streams["text"]["entity_ids"].any()
    with pytest.raises(WorkbenchError, match=r"the separator 'river boats' is no single token"):
        transform(separator="river boats")

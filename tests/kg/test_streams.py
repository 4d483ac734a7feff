"""The entity stream of a sequence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kg.streams import EntityStream
from workbench.keyed import Draws
from workbench.sequences import Sequence, Span, text_fields

ROWS = {"Q1": 0, "Q2": 1, "Q3": 5}


def sequence(length: int, spans: list[tuple[int, int, str]]) -> Sequence:
    return Sequence({"text": text_fields(np.arange(length))}, (0,), "k", [Span(*span) for span in spans])


def entity(step: EntityStream, source: Sequence) -> tuple[list[int], list[int]]:
    (made,) = step([source], Draws("t", number=(0,)))
    stream = made.streams["entity"]
    assert stream["entity_ids"].dtype == stream["token"].dtype == np.int64
    return stream["token"].tolist(), stream["entity_ids"].tolist()


def test_first_tokens_carry_table_rows_and_cls_a_zero_row() -> None:
    source = sequence(9, [(5, 6, "Q3"), (2, 4, "Q1")])
    assert entity(EntityStream(ROWS), source.copy()) == ([0, 2, 5], [0, 1, 6])
    assert entity(EntityStream(ROWS, cls_row=False), source.copy()) == ([2, 5], [1, 6])


def test_what_cannot_be_had_is_counted() -> None:
    step = EntityStream(ROWS)
    assert entity(step, sequence(9, [(2, 3, "Q1"), (2, 5, "Q2"), (6, 7, "Q7")])) == ([0, 2], [0, 2])
    assert step.take_dropped() == {"entities without a vector": 1, "mentions with the same first token": 1}
    assert step.take_dropped() == {}


def test_what_is_to_be_masked_has_no_entity() -> None:
    step = EntityStream(ROWS, cls_row=False)
    source = sequence(9, [(2, 3, "Q1"), (5, 7, "Q2")])
    source.mask_spans = [Span(6, 8, "Q2")]
    assert entity(step, source) == ([2], [1])
    assert step.take_dropped() == {"mentions to be masked": 1}


def test_no_mentions_and_no_tokens() -> None:
    assert entity(EntityStream(ROWS, cls_row=False), sequence(4, [])) == ([], [])
    assert entity(EntityStream(ROWS), sequence(0, [])) == ([], [])


def test_packed_documents_keep_apart() -> None:
    source = sequence(7, [(1, 2, "Q1"), (5, 6, "Q2")])
    source.streams["text"]["doc"] = np.array([1, 1, 1, 2, 2, 2, 2])
    assert entity(EntityStream(ROWS), source) == ([0, 1, 3, 5], [0, 1, 0, 2])
    assert source.streams["entity"]["doc"].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("record", range(2))
def test_released_alignment_of_plain_mentions(shared: Path, record: int) -> None:
    """The first token of each mention carries it (mentions that start inside a word are lost in the release)."""
    golden = json.loads((shared / "golden/ernie_thu/data_conventions/alignment.json").read_text())[record]
    labels = golden["entity_all_tokens"]
    names = {qid: i for i, (qid, _, _) in enumerate(golden["mentions"])}
    spans = [(labels.index(qid), len(labels) - labels[::-1].index(qid), qid) for qid, _, _ in golden["mentions"]]
    tokens, ids = entity(EntityStream(names, cls_row=False), sequence(len(labels), spans))
    wanted = {i: qid for i, qid in enumerate(golden["entity_first_token"]) if qid != "UNK"}
    assert {t: golden["mentions"][r - 1][0] for t, r in zip(tokens, ids, strict=True)} == wanted

"""The stream of entity tokens."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from kg.objectives.mep import Mep
from kg.sequences.entity_vocabulary import MASK, save_entity_vocabulary
from kg.sequences.transforms.entity_tokens import EntityTokensTransform
from tests.contracts.cases import TransformCase
from workbench.components.building import build
from workbench.components.controls import check_control
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.rows import take
from workbench.sequences.sequence import Mark, Sequence, Span, text_fields

FOLDER = TemporaryDirectory()  # kept as long as the tests run
VOCABULARY = str(Path(FOLDER.name) / "entities.safetensors")
save_entity_vocabulary(Path(VOCABULARY), Counter({"Q1": 3, "Q2": 2}), 9, {})
Q1, Q2 = 3, 4

CASE = TransformCase({"vocabulary": VOCABULARY}, adds=("entity",))


def sequence(length: int, spans: list[tuple[int, int, str]], **fields: Any) -> Sequence:
    return Sequence({"text": {**text_fields(np.arange(length)), **fields}}, (0,), "k", [Span(*span) for span in spans])


def made(source: Sequence, **options: Any) -> tuple[Sequence, dict[str, list[int]], EntityTokensTransform]:
    transform = EntityTokensTransform(VOCABULARY, **options)
    (found,) = transform([source], Draws("t", number=(0,)))
    stream = found.streams["entity"]
    return found, {name: np.asarray(values).tolist() for name, values in stream.items()}, transform


def test_a_mention_is_a_row_with_the_positions_of_its_tokens() -> None:
    segments = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    source = sequence(9, [(5, 8, "Q2"), (1, 3, "Q1"), (1, 2, "Q2")], token_type_ids=segments, rank=np.arange(9))
    found, entity, _ = made(source)
    assert entity["entity_ids"] == [Q1, Q2, Q2]
    assert (entity["token"], entity["position_ids"]) == ([1, 1, 5], [1, 1, 5])
    assert entity["last_position_ids"] == entity["rank"] == [2, 1, 7]  # nobody sees an entity before its mention ends
    assert entity["token_type_ids"] == [0, 0, 1]
    take(found, np.array([0, 5, 6, 7]))
    assert found.streams["entity"]["entity_ids"].tolist() == [Q2]


def test_positions_are_those_of_the_text() -> None:
    _, entity, _ = made(sequence(4, [(1, 3, "Q1")], position_ids=np.array([0, 5, 6, 7])))
    assert (entity["position_ids"], entity["last_position_ids"]) == ([5], [6])


def test_what_cannot_be_had_is_counted() -> None:
    source = sequence(9, [(1, 3, "Q1"), (1, 3, "Q2"), (4, 5, "Q9"), (6, 7, "Q2")])
    source.mask_spans = [Span(6, 8, "")]
    _, entity, transform = made(source)
    assert entity["entity_ids"] == [Q1]
    lost = ("further candidates for a mention", "entities outside the vocabulary", "mentions to be masked")
    assert transform.take_dropped() == dict.fromkeys(lost, 1)
    assert transform.take_dropped() == {}


def test_without_knowledge_there_are_no_rows() -> None:
    assert made(sequence(5, [(1, 2, "Q1")]), control="no-kg")[1]["entity_ids"] == []


def test_under_mentions_only_all_are_the_mask_and_none_is_predicted() -> None:
    found, entity, _ = made(sequence(9, [(1, 2, "Q1"), (4, 6, "Q2"), (7, 8, "Q9")]), control="mentions-only")
    assert (entity["entity_ids"], entity["token"]) == ([MASK, MASK], [1, 4])
    Mep(rate=1.0).corrupt([found], Draws("t", number=(0,)))
    (targets,) = found.targets.values()
    assert len(targets["labels"]) == 0


def test_marked_stretches_become_masks_that_are_marked_too() -> None:
    source = sequence(9, [(1, 3, "Q1")])
    source.marks = [Mark("tail", 6, 7), Mark("head", 2, 5)]
    found, entity, transform = made(source, marks=True)
    assert entity["entity_ids"] == [MASK, MASK]
    assert (entity["position_ids"], entity["last_position_ids"]) == ([2, 6], [4, 6])
    assert found.marks[2:] == [Mark("head", 0, 1, "entity"), Mark("tail", 1, 2, "entity")]
    assert not transform.reads_spans  # whatever the corpus, fine-tuning needs no links
    assert EntityTokensTransform(VOCABULARY).reads_spans


def test_a_control_that_changes_nothing_of_marked_stretches_is_refused() -> None:
    spec = {"transform": "kg.entity_tokens", "vocabulary": VOCABULARY}
    check_control("no-kg", [build("transform", spec, control="no-kg")], "a run")
    with pytest.raises(WorkbenchError, match="would change nothing in a run: its components support none"):
        check_control("no-kg", [build("transform", {**spec, "marks": True}, control="no-kg")], "a run")

"""The streams of mentions and of their candidates."""

from __future__ import annotations

import pickle

import numpy as np
import torch

from kg.sequences.transforms.candidates import CandidatesTransform
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.contracts.cases import TransformCase
from workbench.core.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.rows import drop, insert
from workbench.sequences.sequence import Sequence, Span, text_fields

CASE = TransformCase({"table": {"Q1": 0, "Q2": 5}}, adds=("mentions", "candidates"))

ROWS = {"Q1": 0, "Q2": 1, "Q3": 5}


def sequence(length: int, spans: list[Span], **fields: np.ndarray) -> Sequence:
    return Sequence({"text": {**text_fields(np.arange(length)), **fields}}, (0,), "k", spans)


def made(transform: CandidatesTransform, source: Sequence) -> Sequence:
    return transform([source], Draws("t", number=(0,)))[0]


def rows(found: Sequence) -> tuple[list[list[int]], list[list[int]]]:
    """The first and last tokens of the mentions, and the mention and table row of each candidate."""
    mention, candidates = found.streams["mentions"], found.streams["candidates"]
    places = [
        list(place) for place in zip(mention["token"].index.tolist(), mention["last"].index.tolist(), strict=True)
    ]
    owners = zip(candidates["mention"].index.tolist(), candidates["entity_ids"].tolist(), strict=True)
    return places, [list(owner) for owner in owners]


SPANS = [
    Span(4, 7, "Q3", 0.2),
    Span(1, 2, "Q1", 0.3, labels={"right": 1}),
    Span(1, 2, "Q9", 0.9),
    Span(1, 2, "Q2", 0.6, labels={"right": 0}),
    Span(1, 5, "Q2", 0.0),
]


def test_spans_of_the_same_rows_are_candidates_of_one_mention_the_best_first() -> None:
    transform = CandidatesTransform(ROWS)
    found = made(transform, sequence(9, SPANS))
    assert rows(found) == ([[1, 1], [4, 6]], [[0, 2], [0, 1], [1, 6]])
    candidates = found.streams["candidates"]
    np.testing.assert_allclose(candidates["prior"], [0.6, 0.3, 0.2], rtol=1e-6)
    assert candidates["prior"].dtype == np.float32
    assert candidates["right"].tolist() == [0, 1, -1]
    assert transform.take_dropped() == {"entities without a vector": 1, "candidates below min_score": 1}
    assert rows(made(CandidatesTransform(ROWS, most=1), sequence(9, SPANS))) == ([[1, 1], [4, 6]], [[0, 2], [1, 6]])
    assert rows(made(CandidatesTransform(ROWS, control="no-kg"), sequence(9, SPANS))) == ([], [])
    alike = made(CandidatesTransform(ROWS, control="mentions-only"), sequence(9, SPANS))
    assert rows(alike) == ([[1, 1], [4, 6]], [[0, 1], [0, 1], [1, 1]])


def test_two_graphs_have_streams_of_their_own() -> None:
    source = sequence(9, SPANS)
    made(CandidatesTransform(ROWS, "wiki", "wiki_mentions"), source)
    made(CandidatesTransform({"Q9": 7}, "wordnet", "wordnet_mentions"), source)
    assert source.streams["wordnet"]["entity_ids"].tolist() == [8]
    assert source.streams["wiki"]["mention"].stream == "wiki_mentions"


def test_mentions_of_packed_documents_see_their_own() -> None:
    found = made(CandidatesTransform(ROWS), sequence(9, SPANS, doc=np.array([1] * 4 + [2] * 5)))
    assert found.streams["mentions"]["doc"].tolist() == [1, 2]


def test_candidates_go_with_their_mention_and_follow_it() -> None:
    found = made(CandidatesTransform(ROWS), sequence(9, SPANS))
    insert(found, np.array([0, 5]), input_ids=np.array([7, 7]))
    assert rows(found) == ([[2, 2], [5, 8]], [[0, 2], [0, 1], [1, 6]])
    drop(found, np.array([2]))
    assert rows(found) == ([[4, 7]], [[0, 6]])
    batch = collate([found, made(CandidatesTransform(ROWS), sequence(9, SPANS))])
    assert batch.streams["mentions"].fields["token"].tolist() == [4, 11, 14]
    assert batch.streams["candidates"].fields["mention"].tolist() == [0, 1, 1, 2]
    assert "right" not in batch.streams["candidates"].fields


def test_workers_open_the_file_again(tmp_path) -> None:
    path = tmp_path / "v.safetensors"
    save_vectors(GraphVectors([f"Q{i}" for i in range(5000)], torch.zeros(5000, 2), ["r"], torch.zeros(1, 2)), path)
    transform = CandidatesTransform(str(path))
    assert len(pickle.dumps(transform)) < 2000
    assert pickle.loads(pickle.dumps(transform)).rows.get("Q7") == 7

"""The transform `queries`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.cases import TransformCase
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.attention.visibility import visible
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields
from workbench.sequences.transforms.queries import QueriesTransform

CASE = TransformCase({"stream": "queries", "count": 3}, {"dropped": "it drops nothing"}, adds=("queries",))


def made(*streams: str) -> Sequence:
    fields = {"text": text_fields(np.arange(2)), "image": {"boxes": np.zeros((4, 4), np.float32)}}
    return Sequence({name: fields[name] for name in streams}, (0,))


def test_images_get_their_queries_and_keep_them() -> None:
    both, words = QueriesTransform("pooled", 3)([made("text", "image"), made("text")], Draws(0, "transform", number=()))
    assert both.streams["pooled"]["input_ids"].tolist() == [0, 1, 2]
    assert both.streams["pooled"]["special"].all()
    assert "pooled" not in words.streams
    assert set(both.alone("image").streams) == set(both.alone("pooled").streams) == {"image", "pooled"}
    assert set(both.alone("text").streams) == {"text"}
    batch = collate([both, words])
    assert batch.streams["pooled"].lengths == [3, 0]


def test_those_that_are_not_read_are_behind_every_text() -> None:
    [one] = QueriesTransform("pooled", 3, unread=1)([made("text", "image")], Draws(0, "transform", number=()))
    one.streams["text"]["rank"] = np.arange(2)
    streams = collate([one]).streams
    assert visible(streams["text"].fields, streams["pooled"].fields).tolist() == [[False, True, True]] * 2
    assert visible(streams["pooled"].fields, streams["image"].fields).all(), "and they read the image"
    with pytest.raises(WorkbenchError, match="unread = 4 of count = 3"):
        QueriesTransform("pooled", 3, unread=4)


def test_a_stream_that_is_there_is_not_written_over() -> None:
    with pytest.raises(WorkbenchError, match="'text' already"):
        QueriesTransform("text", 3)([made("text", "image")], Draws(0, "transform", number=()))


def test_packed_texts_are_refused() -> None:
    packed = made("text")
    packed.streams["text"]["doc"] = np.array([1, 2])
    with pytest.raises(WorkbenchError, match="has several texts, and each needs rows of its own"):
        QueriesTransform("prompt", 3, of="text")([packed], Draws(0, "transform", number=()))

"""The transform `vision.text_class`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.cases import TransformCase
from vision.sequences.transforms.text_class import TextClassTransform
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.attention.visibility import visible
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

CASE = TransformCase({"stream": "end"}, {"dropped": "it drops nothing"}, adds=("end",))


class Words:
    """A tokenizer that has padding."""

    def id(self, name: str) -> int:
        return {"pad": 7}[name]

    def has(self, name: str) -> bool:
        return name == "pad"


def made(rows: int, **options: int | str) -> Sequence:
    fields = {**text_fields(np.arange(rows)), "rank": np.arange(rows)}
    [sequence] = TextClassTransform(Words(), **options)(
        [Sequence({"text": fields}, (0,))], Draws(0, "transform", number=())
    )
    return sequence


def seen(sequence: Sequence, query: str, key: str) -> list[list[bool]]:
    streams = collate([sequence]).streams
    return visible(streams[query].fields, streams[key].fields).tolist()


def test_it_sees_the_text_and_itself_and_is_seen_by_none() -> None:
    one = made(3)
    assert set(one.streams) == {"text", "class"}
    assert seen(one, "class", "text") == [[True, True, True]]
    assert seen(one, "class", "class") == [[True]]
    assert seen(one, "text", "class") == [[False]] * 3


def test_as_released_a_short_text_has_a_row_of_padding() -> None:
    short, full = made(3, length=4), made(4, length=4)
    assert short.streams["padding"]["input_ids"].tolist() == [7]
    assert short.streams["padding"]["position_ids"].tolist() == [3]
    assert (seen(short, "class", "padding"), seen(short, "class", "class")) == ([[True]], [[False]])
    assert seen(short, "padding", "text") == [[True, True, True]]
    assert seen(short, "padding", "class") == [[False]]
    assert seen(short, "text", "padding") == [[False]] * 3
    assert "padding" not in full.streams
    assert seen(full, "class", "class") == [[True]]
    assert set(short.alone("text").streams) == {"text", "class", "padding"}


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(WorkbenchError, match=r"a text of 5 tokens, and length = 4"):
        made(5, length=4)
    with pytest.raises(WorkbenchError, match="a stream 'text' already"):
        made(2, stream="text")

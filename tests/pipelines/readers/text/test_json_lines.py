"""The text format `json-lines`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines
from workbench.core.errors import WorkbenchError

CASE = ReaderCase(text=json_lines(lambda i: {"text": f"text number {i} of a file"}))


def test_stretches_are_sorted(json_lines: Any, read: Any) -> None:
    """Links that overlap, in any order, as annotation tools write them."""
    row = {
        "text": "New York City Hall",
        "spans": [[0, 13, "nyc", 0.5], [14, 18, "hall", 1.0], [0, 8, "ny", 1.0]],
        "tags": [[9, 13, "N"], [0, 3, "A"]],
        "choices": ["a b", "c"],
        "choice_spans": [[[2, 3, "b", 1.0], [0, 1, "a", 1.0]], []],
    }
    sample = read("text", json_lines("rows.jsonl", [row]))[0]
    assert sample["spans"] == [[0, 8, "ny", 1.0], [0, 13, "nyc", 0.5], [14, 18, "hall", 1.0]]
    assert sample["tags"] == [[0, 3, "A"], [9, 13, "N"]]
    assert sample["choice_spans"][0] == [[0, 1, "a", 1.0], [2, 3, "b", 1.0]]


def test_a_token_of_white_space_outside_of_chunks_has_no_tag(json_lines: Any, read: Any) -> None:
    """Wikipedia has such spaces between numbers and units."""
    row = {"text": ["about", "500", "\u00a0", "km"], "tags": ["O", "B-N", "O", "I-N"]}
    (sample,) = read("text", json_lines("rows.jsonl", [row]))
    assert sample["tags"] == [[0, 5, "O"], [6, 9, "B-N"], [12, 14, "I-N"]]


def test_messages_are_turns_with_their_speakers(json_lines: Any, read: Any) -> None:
    said = [{"role": "user", "content": "Where is Oslo?"}, {"role": "assistant", "content": "In Norway."}]
    (sample,) = read("text", json_lines("rows.jsonl", [{"messages": said, "source": "x"}]))
    assert sample["turns"] == ["Where is Oslo?", "In Norway."]
    assert sample["speakers"] == ["user", "assistant"]
    assert "messages" not in sample["meta"]


@pytest.mark.parametrize("more", [{"tool_calls": [{"id": "1"}]}, {"weight": 0}, {"name": "Ann"}])
def test_messages_with_more_than_texts_are_refused(more: Any, json_lines: Any, read: Any) -> None:
    said = [{"role": "user", "content": "Where?", "tool_calls": [], "name": None}]
    assert len(read("text", json_lines("rows.jsonl", [{"messages": said}]))) == 1
    with pytest.raises(WorkbenchError, match=f"messages with {next(iter(more))} .*remove the others"):
        read("text", json_lines("more.jsonl", [{"messages": [{**said[0], **more}]}]))


@pytest.mark.parametrize("said", [[{"role": "user"}], ["Where?"], [{"role": "user", "content": [{"type": "image"}]}]])
def test_messages_without_texts_are_damaged(said: Any, json_lines: Any, read: Any) -> None:
    with pytest.raises(WorkbenchError, match="messages without texts"):
        read("text", json_lines("rows.jsonl", [{"messages": said}]))

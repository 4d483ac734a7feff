"""The text format `marked-mentions`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines.readers.formats import detect
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines
from workbench.core.errors import WorkbenchError


def row(i: int) -> dict[str, Any]:
    marked = f"So [START_ENT]user {i}[END_ENT] said."
    return {"id": i, "input": marked, "mention": f"user {i}", "answer": f"User {i}", "candidates": ["A", f"User {i}"]}


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CASE = ReaderCase(text=json_lines(row))


def test_a_mention_its_link_and_the_candidates(tmp_path, read) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text(lines(row(3), {**row(4), "answer": ""}, {**row(5), "answer": "B"}))
    assert detect("text", [file]) == "marked-mentions"
    first, nil, other = read("text", file)
    assert (first["text"], first["mention"], first["spans"]) == ("So user 3 said.", [3, 9], [[3, 9, "User 3", 1.0]])
    assert (first["choices"], first["answer"]) == (["A", "User 3"], 1)
    assert nil["spans"] == []
    assert "answer" not in nil
    assert other["spans"] == [[3, 9, "B", 1.0]]
    assert "answer" not in other
    file.write_text(lines({**row(1), "input": "[END_ENT] x [START_ENT]"}))
    with pytest.raises(WorkbenchError, match=r"not marked by one"):
        read("text", file)

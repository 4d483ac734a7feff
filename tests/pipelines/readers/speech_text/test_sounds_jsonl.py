"""The speech-text format `sounds-jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.reader import MalformedError
from pipelines.readers.speech_text.sounds_jsonl import SoundsJsonl, transcribed
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines
from tests.videos import tone
from workbench.core.errors import WorkbenchError


def row(i: int) -> dict[str, Any]:
    words = [{"word": "a", "start": 0, "end": 0.2}, {"word": "tone", "start": 0.25, "end": 0.5}]
    return {"sound": f"{i}.wav", "transcript": "It is a tone.", "words": words, "speaker": "x"}


CASE = ReaderCase(text=json_lines(row), alongside=lambda records: {f"{i}.wav": tone() for i in range(min(records, 9))})


def test_words_stand_in_the_transcript() -> None:
    made = transcribed(row(0), "here")
    assert made == {"transcript": "It is a tone.", "words": [[6, 7, 0.0, 0.2], [8, 12, 0.25, 0.5]]}
    without = transcribed({"words": [[0, 1, "one"], [1, 2, "two"]]}, "here")
    assert without == {"transcript": "one two", "words": [[0, 3, 0.0, 1.0], [4, 7, 1.0, 2.0]]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"words": [[0, 1, "tone"], [1, 2, "a"]]}, r"not in the transcript.*'a'"),
        ({"words": [[1, 0, "a"]]}, r"\[from, to\] in seconds"),
        ({"words": [{"word": "a"}]}, r"\[from, to\] in seconds"),
        ({"words": ["a"]}, "a word must be"),
        ({"transcript": 3}, "wrong type"),
    ],
)
def test_what_is_malformed_is_reported(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        transcribed(row(0) | changed, "here")


def test_labels_of_a_row_and_columns_that_are_labels(tmp_path: Path) -> None:
    (tmp_path / "0.wav").write_bytes(tone())
    file = tmp_path / "spoken.jsonl"
    file.write_text(json.dumps({**row(0), "labels": {"intent": 3}}))

    def read(**options: Any) -> dict[str, Any]:
        [sample] = SoundsJsonl(sounds=[str(tmp_path)], **options).samples([file])
        return sample

    assert read()["labels"] == {"intent": 3}
    assert read()["meta"]["speaker"] == "x"
    chosen = read(fields={"labels": ["speaker"]})
    assert chosen["labels"] == {"speaker": "x"}
    assert "speaker" not in chosen["meta"]
    with pytest.raises(WorkbenchError, match="field 'words'"):
        read(fields={"words": "words"})

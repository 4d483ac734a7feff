"""The builder `spoken_words`: a row for the sound of each word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contracts.material import draws, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.sequences.batch import collate
from workbench.sequences.builders.spoken_words import BEYOND, CUT, LATE, SpokenWordsBuilder
from workbench.sequences.sequence import Sequence

EXCUSED = "it reads speech, which the contracts' samples have not; tested here"
TEXT = "river bridge old river"


def sample(**changes: Any) -> dict[str, Any]:
    """Frame n holds n; words take 0.05, 0.02, 0.1 and 0.03 seconds, the last beyond the end."""
    places = [[0, 5, 0.0, 0.05], [6, 12, 0.05, 0.07], [13, 16, 0.07, 0.17], [17, 22, 0.17, 0.3]]
    frames = {"features": np.arange(20, dtype=np.float16)[:, None] * np.ones(3, np.float16), "step": np.float32(0.01)}
    return {"key": "s", "draw": (4,), "transcript": TEXT, "words": places, "frames": frames, **changes}


def built(max_length: int = 10, max_frames: int = 8, **changes: Any) -> tuple[list[Sequence], dict[str, int]]:
    builder = SpokenWordsBuilder(tokenizer(), max_length, max_frames)
    return builder([sample(**changes)], draws()), builder.take_dropped()


def test_each_word_has_its_frames_and_its_first_token() -> None:
    [sequence], dropped = built()
    speech = sequence.streams["speech"]
    first = [int(tokenizer().encode(word).ids[0]) for word in TEXT.split()]
    assert speech["input_ids"].tolist() == speech["said_ids"].tolist() == first
    assert speech["frames"].tolist() == [5, 2, 8, 3]
    shown = [speech["features"][row, : speech["frames"][row], 0].tolist() for row in range(4)]
    assert shown == [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9, 10, 11, 12, 13, 14], [17, 18, 19]]
    assert not speech["features"][0, 5:].any()
    assert dropped == {CUT: 2}
    assert sequence.streams["text"]["position_ids"].tolist() == [0, 5]
    assert speech["position_ids"].tolist() == [1, 2, 3, 4]
    assert collate([sequence]).streams["speech"].fields["features"].shape == (4, 8, 3)


def test_more_words_are_several_sequences() -> None:
    sequences, _ = built(max_length=5)
    assert [s.length("speech") for s in sequences] == [3, 1]
    assert len({s.draw for s in sequences}) == 2
    assert [s.length("speech") for s in built(words=[])[0]] == [0]


def test_where_a_record_is_one_sequence_more_words_are_cut_off_and_counted() -> None:
    builder = SpokenWordsBuilder(tokenizer(), 5, 8, split=False)
    [sequence] = builder([sample()], draws())
    assert sequence.length("speech") == 3
    assert builder.take_dropped()[BEYOND] == 1


def test_words_behind_the_end_of_the_sound_are_left_out_and_counted() -> None:
    """Milliseconds read as seconds: each would get the last frame."""
    [sequence], dropped = built(words=[[0, 5, 0.0, 0.05], [6, 12, 50, 70], [13, 16, 70, 170], [17, 22, 0.21, 0.23]])
    assert sequence.streams["speech"]["frames"].tolist() == [5, 1]
    assert dropped == {LATE: 2}, "the last one begins in the last window"


def test_what_is_missing_is_reported() -> None:
    lacking = sample()
    del lacking["words"]
    with pytest.raises(WorkbenchError, match=r"no 'words'.*prepare speech-text"):
        SpokenWordsBuilder(tokenizer(), 10)([lacking], draws())
    with pytest.raises(WorkbenchError, match="frames need features"):
        built(frames={"features": np.zeros(3)})

"""Short sequences at the start of a run: lengths by hand, and no token is lost. test_progress.py resumes such a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.length_warmup import LengthWarmup
from workbench.text.tokenizer import Tokenizer

RISING = {"from": 16, "until": 0.5}
SHAPES = {
    "linear": [16, 16, 24, 32, 40, 40, 48, 56, 64, 64],
    "staged": [16, 16, 16, 16, 16, 16, 16, 16, 64, 64],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_lengths_by_hand(shape: Any) -> None:
    """Eight steps from 16 to 64: 16 + 6 k, down to a multiple of 8."""
    warmup = LengthWarmup(16, 0.5, shape)
    assert [warmup.at(step / 16, 64) for step in range(10)] == SHAPES[shape]
    assert warmup.at(1.0, 64) == 64


@pytest.mark.parametrize("builder", ["document", "packed"])
@pytest.mark.parametrize("options", [{}, {"full": True, "across": True}])
def test_all_tokens_are_in_shorter_sequences(builder: str, options: Any, tokenizer: Tokenizer) -> None:
    options = options if builder == "packed" else {}
    spec = {"builder": builder, "max_length": 64, "length_warmup": RISING, **options}
    made = build("builder", spec, "sequence", tokenizer=tokenizer)
    plain = build("builder", {**spec, "length_warmup": None}, "sequence", tokenizer=tokenizer)
    text = " ".join(["the river runs through a small town and past the old mill"] * 12)
    samples = [{"key": str(n), "draw": (0, n), "text": text[: 300 + 50 * n]} for n in range(3)]

    def words_of(found: list[Any]) -> list[int]:
        streams = [sequence.streams["text"] for sequence in found]
        return np.concatenate([stream["input_ids"][~stream["special"]] for stream in streams]).tolist()

    whole = plain(samples, Draws(0, "t", "builder", number=(0,), progress=0.0))
    for progress, longest in ((0.0, 16), (0.25, 40), (0.5, 64), (1.0, 64)):
        found = made(samples, Draws(0, "t", "builder", number=(0,), progress=progress))
        lengths = [sequence.length("text") for sequence in found]
        assert longest - 2 <= max(lengths) <= longest, progress
        assert sorted(words_of(found)) == sorted(words_of(whole))
    evaluated = made.evaluating()(samples, Draws(0, "t", "builder", number=(0,)))
    assert 62 <= max(sequence.length("text") for sequence in evaluated) <= 64


@pytest.mark.parametrize("start", [2, 64])
def test_other_bounds_are_refused(start: int, tokenizer: Tokenizer) -> None:
    spec = {"builder": "document", "max_length": 64, "length_warmup": {"from": start, "until": 0.5}}
    with pytest.raises(WorkbenchError, match=rf"from = {start}; allowed: from 3 on, and below max_length = 64"):
        build("builder", spec, "sequence", tokenizer=tokenizer)

"""Denoising: the whole text is asked for, in its order; noises act one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contracts.material import tokenizer
from tests.objectives.test_decoder import DRAWS, documents, made
from workbench.components.build_context import mark
from workbench.core.errors import WorkbenchError
from workbench.sequences.protocols import Noise
from workbench.sequences.sequence import Mark, Rows, Sequence

EXCUSED = "it makes a stream that the network of the contracts does not have"
FIVE = [
    {"noise": "permute", "rate": 1},
    {"noise": "rotate", "rate": 0.5},
    {"noise": "infill", "rate": 0.2},
    {"noise": "mask", "rate": 0.1},
    {"noise": "delete", "rate": 0.1},
]


def test_all_noises_together_and_the_whole_text_is_asked_for() -> None:
    before, after = documents(20), documents(20)
    made("denoising", noises=FIVE).corrupt(after, DRAWS)
    for old, new in zip(before, after, strict=True):
        ids, whole = new.streams["text"]["input_ids"], old.streams["text"]["input_ids"]
        assert new.targets["it"]["labels"].tolist() == whole.tolist()
        assert len(ids) < len(whole)
        assert set(ids.tolist()) <= {*whole.tolist(), tokenizer().id("mask")}
        assert new.targets["it"]["rows"].stream == "target"


def test_a_noise_that_there_is_not_is_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"noises\[0\].*infill"):
        made("denoising", noises=[{"noise": "infil", "rate": 0.2}])


class Wrong(Noise):
    """Does to a text what no noise may."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> Any:
        fields = sequence.streams[stream]
        if self.how == "returns":
            return sequence.copy()
        if self.how == "list":
            fields["input_ids"] = fields["input_ids"].tolist()
        if self.how == "float":
            fields["input_ids"] = fields["input_ids"] * 1.0
        if self.how == "id":
            fields["input_ids"][1] = 5000
        if self.how == "negative":
            fields["input_ids"][1] = -1
        if self.how == "field":
            del fields["taken"]
        if self.how == "length":
            fields["input_ids"] = fields["input_ids"][:-1]
        if self.how in ("mark", "link"):
            for name, field in fields.items():
                fields[name] = field[:2]
        return None


@pytest.mark.parametrize(
    ("how", "reported"),
    [
        ("returns", "returned something of type Sequence"),
        ("list", "left input_ids of the stream 'text' as a list of int"),
        ("float", r"left input_ids of the stream 'text' as a ndarray \[\d+\] of float64"),
        ("id", "left the token 5000 in the stream 'text'"),
        ("negative", "left the token -1 in the stream 'text'"),
        ("field", "left the stream 'text' without taken"),
        ("length", r"left the stream 'text' with \d+ input_ids, \d+ token_type_ids"),
        ("mark", "left a stretch up to row 3 of the stream 'text' with 2"),
        ("link", "left row 3 of the stream 'text' with 2 in rows of targets of earlier"),
    ],
)
def test_what_a_noise_returns_and_leaves_is_checked_where_it_does(how: str, reported: str) -> None:
    after = documents(1)
    after[0].spans = after[0].mask_spans = []
    if how == "mark":
        after[0].marks = [Mark("mention", 1, 4)]
    if how == "link":
        after[0].targets["earlier"] = {"rows": Rows("text", np.array([1, 3]))}
    objective = made("denoising")
    objective.noises = [mark(Wrong(how), "noises[1]: noise 'wrong'")]  # type: ignore[attr-defined]
    place, allowed = r"noises\[1\]: noise 'wrong'", tokenizer().vocab_size - 1
    with pytest.raises(WorkbenchError, match=f"^{place} .*{reported}.*; allowed: None, .* ids from 0 to {allowed}, "):
        objective.corrupt(after, DRAWS)

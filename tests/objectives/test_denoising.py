"""Denoising: the whole text is asked for, in its order; noises act one after the other."""

from __future__ import annotations

import pytest

from tests.contracts.material import tokenizer
from tests.objectives.test_decoder import DRAWS, documents, made
from workbench.errors import WorkbenchError

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

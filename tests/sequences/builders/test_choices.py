"""The builder `choices`."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.builders.choices import ChoicesBuilder
from workbench.sequences.builders.sentence_pair import SentencePairBuilder
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it reads choices next to the text, which the samples of the contracts don't have"
DRAWS = Draws(0, "t", "builder", number=(0,))


def test_each_choice_is_a_pair_behind_the_question(tokenizer: Tokenizer) -> None:
    linked = {"choices": ["boats", "old Paris"], "choice_spans": [[], [[4, 9, "Q-Paris", 1.0]]], "answer": 1}
    sample = {"key": "a", "draw": (3,), "text": "people in Hamburg", "second": "look for", **linked}
    made = ChoicesBuilder(tokenizer, 40)([sample], DRAWS)
    assert [s.meta for s in made] == [{"choice": 0, "answer": 1}, {"choice": 1, "answer": 1}]
    assert [s.draw for s in made] == [(3, 0, 0), (3, 1, 0)]
    for sequence, choice in zip(made, sample["choices"], strict=True):
        pair = {"key": "a", "draw": (3,), "text": sample["text"], "second": f"look for {choice}"}
        (wanted,) = SentencePairBuilder(tokenizer, 40, split=False)([pair], DRAWS)
        np.testing.assert_equal(sequence.streams, wanted.streams)
    (span,) = made[1].spans
    text = made[1].streams["text"]
    assert (text["char_start"][span.start], text["char_end"][span.end - 1]) == (13, 18)
    assert not made[0].spans


def test_a_text_without_choices_is_refused(tokenizer: Tokenizer) -> None:
    for more in ({}, {"choices": []}):
        with pytest.raises(WorkbenchError, match=r"no .choices"):
            ChoicesBuilder(tokenizer, 40)([{"key": "a", "draw": (0,), "text": "people", **more}], DRAWS)

"""The builder `passage`."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.builders.passage import PassageBuilder
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it reads a question next to the text, which the samples of the contracts don't have"
DRAWS = Draws(0, "t", "builder", number=(0,))
TEXT = "the old river flows past harbours and bridges while people in small boats look for songs"


def sample(**more: object) -> dict:
    return {"key": "a", "draw": (0,), "text": TEXT, "second": "what flows?", **more}


def test_every_token_of_a_long_text_is_read_next_to_the_question(tokenizer: Tokenizer) -> None:
    linked = [[8, 13, "Q-river", 1.0]]
    made = PassageBuilder(tokenizer, 20, stride=5)([sample(spans=linked, answers=["river"])], DRAWS)
    assert len(made) > 2
    seen = set()
    for number, sequence in enumerate(made):
        text = sequence.streams["text"]
        assert sequence.length("text") <= 20
        assert sequence.draw == (0, number)
        assert sequence.meta == {"text": TEXT, "answers": ["river"]}
        question = np.flatnonzero(text["token_type_ids"] == 0)
        assert (text["char_start"][question] == -1).all()
        seen |= {(s, e) for s, e in zip(text["char_start"], text["char_end"], strict=True) if s >= 0}
        for span in sequence.spans:
            assert TEXT[text["char_start"][span.start] : text["char_end"][span.end - 1]] == "river"
    encoded = tokenizer.encode(TEXT)
    assert seen == set(zip(encoded.starts, encoded.ends, strict=True))
    assert any(sequence.spans for sequence in made)


def test_a_sample_gives_the_same_in_any_company(tokenizer: Tokenizer) -> None:
    builder, other = PassageBuilder(tokenizer, 20), {**sample(), "key": "b", "text": "songs", "second": ""}
    alone, together = builder([sample()], DRAWS), builder([other, sample()], DRAWS)
    assert [s.key for s in together] == ["b", *("a" for _ in alone)]
    for one, same in zip(alone, together[1:], strict=True):
        np.testing.assert_equal(one.streams, same.streams)


def test_a_long_question_is_cut_and_counted(tokenizer: Tokenizer) -> None:
    builder = PassageBuilder(tokenizer, 24, max_question=4)
    made = builder([sample(second="what river flows past old harbours and bridges?")], DRAWS)
    assert all((s.streams["text"]["token_type_ids"] == 0).sum() == 6 for s in made)
    assert builder.take_dropped()["truncated tokens"] > 0


def test_what_does_not_fit_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match="max_question = 17 leaves no room"):
        PassageBuilder(tokenizer, 20, max_question=17)
    with pytest.raises(WorkbenchError, match=r"no .second.*Where does Oslo lie"):
        PassageBuilder(tokenizer, 20)([{"key": "a", "draw": (0,), "text": TEXT}], DRAWS)

"""The builder `question_choices`."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from workbench.core.errors import BadValueError
from workbench.core.keyed import Draws
from workbench.sequences.builders.choices import ChoicesBuilder
from workbench.sequences.builders.question_choices import QuestionChoicesBuilder
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it reads choices next to the question, which the samples of the contracts don't have"
DRAWS = Draws(0, "t", "builder", number=(0,))
PATCHES = {"image_processor": "vision.patches", "size": 8, "patch": 4}


def photograph(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(buffer, "PNG")
    return buffer.getvalue()


def test_each_choice_stands_behind_the_question_and_next_to_its_image(tokenizer: Tokenizer) -> None:
    samples = [
        {
            "key": name,
            "draw": (number,),
            "image": photograph(name),
            "questions": [{"question_id": number, "question": "people look for", "answers": []}],
            "choices": ["boats", "old Paris", "the river"][: 2 + number],
            "answer": 1,
        }
        for number, name in enumerate(("red", "blue"))
    ]
    made = QuestionChoicesBuilder(tokenizer, 40, image_processor=PATCHES)(samples, DRAWS)
    assert [s.meta for s in made] == [{"choice": n, "answer": 1} for n in (0, 1, 0, 1, 2)]
    texts = ChoicesBuilder(tokenizer, 40)([{**s, "text": "people look for"} for s in samples], DRAWS)
    for mine, alone in zip(made, texts, strict=True):
        np.testing.assert_equal(mine.streams["text"], alone.streams["text"])
        assert (mine.group, mine.draw) == (alone.group, alone.draw)
    rows = [s.streams["image"]["patches"] for s in made]
    assert all(np.array_equal(rows[0], other) for other in rows[:2])
    assert all(np.array_equal(rows[2], other) for other in rows[2:])
    assert not np.array_equal(rows[0], rows[2])
    assert made[0].streams["image"] is not made[1].streams["image"], "transforms change each sequence's own"
    several = {**samples[0], "questions": samples[0]["questions"] * 2}
    with pytest.raises(
        BadValueError, match=r"sample 'red' .* 2 questions and one list of choices; each needs a record"
    ):
        QuestionChoicesBuilder(tokenizer, 40, image_processor=PATCHES)([several], DRAWS)
    blind = QuestionChoicesBuilder(tokenizer, 40, image_processor=PATCHES, control="question-only")(samples, DRAWS)
    assert all(set(s.streams) == {"text"} for s in blind)

"""The transform `text_copy`."""

from __future__ import annotations

import numpy as np

from tests.contracts import material
from tests.contracts.cases import TransformCase
from workbench.core.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence, text_fields
from workbench.sequences.transforms.text_copy import TextCopyTransform

CASE = TransformCase({"stream": "copy", "begin": "bos", "causal": True}, {"dropped": "it drops nothing"}, ("copy",))
DRAWS = Draws(0, "transform", number=())


def made(length: int = 3) -> Sequence:
    image = {"boxes": np.zeros((2, 4), np.float32)}
    return Sequence({"text": text_fields(np.arange(7, 7 + length)), "image": image}, (0,))


def test_a_copy_has_a_first_token_of_its_own_and_sees_what_is_before() -> None:
    tokenizer = material.tokenizer()
    (found,) = TextCopyTransform(tokenizer, "copy", begin="bos", causal=True)([made()], DRAWS)
    copy, text = found.streams["copy"], found.streams["text"]
    assert copy["input_ids"].tolist() == [tokenizer.id("bos"), 8, 9]
    assert copy["rank"].tolist() == [1, 2, 3]
    assert text["input_ids"].tolist() == [7, 8, 9]
    assert "rank" not in text
    copy["taken"][:] = True
    assert not text["taken"].any()


def test_a_copy_goes_with_its_text() -> None:
    tokenizer = material.tokenizer()
    sequences = TextCopyTransform(tokenizer, "copy")([made(), made(0), made(2)], DRAWS)
    assert set(sequences[0].alone("text").streams) == {"text", "copy"}
    assert set(sequences[0].alone("image").streams) == {"image"}
    assert collate(sequences).streams["copy"].lengths == [3, 0, 2]


def test_a_stream_that_is_there_stays() -> None:
    sequence = made()
    sequence.streams["copy"] = text_fields(np.arange(2))
    (found,) = TextCopyTransform(material.tokenizer(), "copy", begin="bos")([sequence], DRAWS)
    assert found.streams["copy"]["input_ids"].tolist() == [0, 1]
    assert not any(isinstance(values, Rows) for values in found.streams["copy"].values())

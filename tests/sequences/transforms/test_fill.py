"""The transform `fill`: padding that is read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts import material
from tests.contracts.cases import TransformCase
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.sequence import Sequence, text_fields
from workbench.sequences.transforms.fill import FillTransform

CASE = TransformCase({"length": 512}, {"dropped": "nothing is left out"})
DRAWS = Draws(0, "task", "transform", number=(0,))


def test_texts_get_one_length_and_images_alone_none() -> None:
    tokenizer = material.tokenizer()
    made = [Sequence({"text": text_fields(np.arange(7, 7 + n))}, (n,)) for n in (3, 5)] + [Sequence({}, (0,))]
    short, whole, without = FillTransform(tokenizer, 5)(made, DRAWS)
    assert short.streams["text"]["input_ids"].tolist() == [7, 8, 9, tokenizer.id("pad"), tokenizer.id("pad")]
    assert short.streams["text"]["position_ids"].tolist() == [0, 1, 2, 3, 4]
    assert short.streams["text"]["taken"].tolist() == [False] * 3 + [True] * 2
    assert whole.streams["text"]["input_ids"].tolist() == [7, 8, 9, 10, 11]
    assert without.streams == {}
    with pytest.raises(WorkbenchError, match="has a text of 5 tokens, and length = 4"):
        FillTransform(tokenizer, 4)([whole], DRAWS)

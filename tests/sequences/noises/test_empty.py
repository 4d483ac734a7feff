"""The noise `empty`: a text is whole, or nothing is left of it."""

from __future__ import annotations

import numpy as np

from tests.contracts.cases import NoiseCase
from tests.contracts.material import text_samples
from tests.contracts.test_noises import documents
from workbench.core.keyed import generator
from workbench.sequences.noises import EmptyNoise

CASE = NoiseCase({"rate": 0.5})


def test_so_many_texts_are_left_out() -> None:
    left = []
    for i, sequence in enumerate(documents(text_samples(200, words=5))):
        before = sequence.length("text")
        EmptyNoise(0.3)(sequence, "text", generator(i))
        assert sequence.length("text") in (2, before)
        left.append(sequence.length("text") == 2)
    assert abs(sum(left) - 60) < 4 * np.sqrt(200 * 0.3 * 0.7)

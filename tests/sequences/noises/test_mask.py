"""The noise `mask`: how many tokens, and that all else is as it was."""

from __future__ import annotations

import numpy as np

from tests.contracts.cases import NoiseCase
from tests.contracts.material import text_samples, tokenizer
from tests.contracts.test_noises import documents
from workbench.core.keyed import generator
from workbench.sequences.noises import MaskNoise

CASE = NoiseCase({"rate": 0.3})


def test_its_share_of_the_tokens_is_masked_and_the_rest_stays() -> None:
    noise, masked, free = MaskNoise(tokenizer(), 0.3), 0, 0
    for i, sequence in enumerate(documents(text_samples(60))):
        before = sequence.streams["text"]["input_ids"].copy()
        noise(sequence, "text", generator(i))
        text = sequence.streams["text"]
        changed = text["input_ids"] != before
        assert (text["input_ids"][changed] == tokenizer().id("mask")).all()
        assert text["taken"].tolist() == changed.tolist()
        masked, free = masked + int(changed.sum()), free + len(before) - 2
    assert abs(masked - 0.3 * free) < 4 * np.sqrt(0.3 * 0.7 * free)

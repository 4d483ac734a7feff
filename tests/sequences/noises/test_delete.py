"""The noise `delete`: how many tokens, and that the others keep their order."""

from __future__ import annotations

import numpy as np

from tests.contracts.cases import NoiseCase
from tests.contracts.material import text_samples
from tests.contracts.test_noises import documents
from workbench.core.keyed import generator
from workbench.sequences.noises import DeleteNoise

CASE = NoiseCase({"rate": 0.3})


def test_its_share_of_the_tokens_goes_and_the_others_keep_their_order() -> None:
    deleted, free = 0, 0
    for i, sequence in enumerate(documents(text_samples(60))):
        text = sequence.streams["text"]
        text["char_start"] = np.arange(len(text["special"]))  # names each row
        before = len(text["special"])
        DeleteNoise(0.3)(sequence, "text", generator(i))
        kept = sequence.streams["text"]["char_start"]
        assert (np.diff(kept) > 0).all()
        deleted, free = deleted + before - len(kept), free + before - 2
    assert abs(deleted - 0.3 * free) < 4 * np.sqrt(0.3 * 0.7 * free)

"""The noise `infill`: the number of replaced tokens, the lengths of spans, and the replacement."""

from __future__ import annotations

import math

import numpy as np

from tests.contracts.cases import NoiseCase
from tests.contracts.material import text_samples, tokenizer
from tests.contracts.test_noises import documents
from workbench.core.keyed import generator
from workbench.sequences.noises import InfillNoise
from workbench.sequences.sequence import Sequence

CASES = {"": NoiseCase({"rate": 0.3}), "long": NoiseCase({"rate": 0.5, "mean_span": 8.0})}


def infilled(rate: float, words: int) -> list[tuple[Sequence, Sequence]]:
    """Texts of one token a word, before and after, each row named by `char_start`."""
    pairs = []
    for i, sequence in enumerate(documents(text_samples(120, words))):
        text = sequence.streams["text"]
        text["word_ids"] = np.where(text["special"], -1, np.arange(len(text["special"])))
        text["char_start"] = np.arange(len(text["special"]))
        before = sequence.copy()
        InfillNoise(tokenizer(), rate)(sequence, "text", generator(i))
        pairs.append((before, sequence))
    return pairs


def test_a_share_of_the_tokens_goes_and_mask_tokens_stand_in_their_place() -> None:
    gone = free = 0
    for before, after in infilled(0.3, 200):
        text = after.streams["text"]
        new = text["char_start"] < 0
        assert (text["input_ids"][new] == tokenizer().id("mask")).all()
        kept = text["char_start"][~new]
        assert (np.diff(kept) > 0).all()
        assert text["input_ids"][~new].tolist() == before.streams["text"]["input_ids"][kept].tolist()
        gone, free = gone + before.length("text") - len(kept), free + before.length("text") - 2
    assert abs(gone - 0.3 * free) < 4 * np.sqrt(0.3 * 0.7 * free)


def test_lengths_are_drawn_from_a_poisson_distribution() -> None:
    """Of long texts with few spans, which seldom meet each other or the end; neighbours are left out."""
    lengths: list[int] = []
    for _, after in infilled(0.02, 800):
        named = after.streams["text"]["char_start"]
        for row in np.flatnonzero(named < 0):
            if named[row - 1] >= 0 and named[row + 1] >= 0:
                lengths.append(int(named[row + 1] - named[row - 1] - 1))
    total = len(lengths)
    assert total > 600
    for length in range(1, 4):  # the budget cuts the last span of a text, so shares are compared with some room
        share = math.exp(-3) * 3**length / math.factorial(length)
        assert abs(lengths.count(length) - share * total) < 4 * np.sqrt(share * total) + 0.05 * total
    share = math.exp(-3)
    assert abs(lengths.count(0) - share * total) < 4 * np.sqrt(share * total)

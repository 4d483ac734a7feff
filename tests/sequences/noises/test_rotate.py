"""The noise `rotate`: how many texts, and that each token is as likely to come first."""

from __future__ import annotations

import numpy as np

from tests.contracts.cases import NoiseCase
from workbench.core.keyed import generator
from workbench.sequences.noises import RotateNoise
from workbench.sequences.sequence import Sequence, text_fields

CASE = NoiseCase({"rate": 0.9})


def rotated(rate: float, seed: int) -> list[int]:
    special = np.array([True, *[False] * 5, True])
    sequence = Sequence({"text": text_fields(np.arange(7), special=special)}, (0,))
    RotateNoise(rate)(sequence, "text", generator(seed))
    found: list[int] = sequence.streams["text"]["input_ids"].tolist()
    return found


def test_a_text_is_turned_and_every_token_comes_first_as_often() -> None:
    made = [rotated(1.0, seed) for seed in range(500)]
    for ids in made:
        first = ids[1]
        assert ids == [0, *range(first, 6), *range(1, first), 6]
    firsts = [ids[1] for ids in made]
    assert all(abs(firsts.count(token) - 100) < 4 * np.sqrt(500 * 0.2 * 0.8) for token in range(1, 6))


def test_its_share_of_the_texts_is_turned() -> None:
    stayed = sum(rotated(0.5, seed) == list(range(7)) for seed in range(500))
    share = 0.5 + 0.5 / 5
    assert abs(stayed - share * 500) < 4 * np.sqrt(500 * share * (1 - share))

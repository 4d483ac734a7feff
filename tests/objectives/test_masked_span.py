"""MASS: one stretch of half the text, where it stands; what the encoder reads there."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tests.contracts.material import tokenizer
from tests.objectives.test_decoder import DRAWS, documents, made
from workbench.core.keyed import generator
from workbench.objectives.masked_span import stretch

EXCUSED = "it makes a stream that the network of the contracts does not have"


def test_the_stretch_is_asked_for_at_its_positions_and_the_rest_stays() -> None:
    before, after = documents(40), documents(40)
    made("masked_span").corrupt(after, DRAWS)
    shares: Counter[str] = Counter()
    for old, new in zip(before, after, strict=True):
        ids, now = (each.streams["text"]["input_ids"] for each in (old, new))
        labels, rows = new.targets["it"]["labels"], new.streams["target"]["position_ids"]
        assert rows.tolist() == list(range(rows[0], rows[0] + len(labels)))
        assert len(labels) == max(1, round((len(ids) - 1) / 2))  # one special token
        assert labels.tolist() == ids[rows].tolist()
        assert np.delete(now, rows).tolist() == np.delete(ids, rows).tolist()
        assert new.streams["text"]["taken"].nonzero()[0].tolist() == rows.tolist()
        masked, same = now[rows] == tokenizer().id("mask"), now[rows] == ids[rows]
        shares.update(masked=int(masked.sum()), same=int(same.sum()), all=len(rows))
    bound = 4 * (shares["all"] * 0.16) ** 0.5
    assert abs(shares["masked"] - 0.8 * shares["all"]) < bound
    assert abs(shares["same"] - 0.1 * shares["all"]) < bound  # and a random token that is the same, seldom


def test_every_stretch_is_as_likely() -> None:
    free = np.array([False, True, True, True, True, True, True, False])
    found = Counter(tuple(stretch(free, 0.5, generator(seed))) for seed in range(400))
    assert set(found) == {(1, 2, 3), (2, 3, 4), (3, 4, 5), (4, 5, 6)}
    assert all(abs(count - 100) < 4 * (400 * 3 / 16) ** 0.5 for count in found.values())


def test_labelled_rows_are_not_in_it() -> None:
    free = np.array([True, True, False, True, True, True, False])
    found = {tuple(stretch(free, 0.6, generator(seed))) for seed in range(40)}
    assert found == {(3, 4, 5)}
    assert not len(stretch(np.zeros(3, np.bool_), 0.5, generator(0)))

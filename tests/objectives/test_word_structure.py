"""word_structure: which stretches are shuffled, how, and what is predicted."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import token_originals
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives.mlm import Mlm
from workbench.objectives.word_structure import WordStructure

CASE = ObjectiveCase(
    {"rate": 0.5},
    sequence={"builder": "document"},
    small=0,
    recover=token_originals,
)
DRAWS = Draws(0, "task", "word_structure", number=(0,))


def sequences(tokenizer, samples):
    return build("builder", "document", "", tokenizer=tokenizer, max_length=512)(samples, DRAWS)


def made(**options):
    objective = WordStructure(**options)
    objective.name = "word_structure"
    return objective


def test_the_published_share_of_tokens_lies_in_shuffled_trigrams(tokenizer, make_samples):
    clean = sequences(tokenizer, make_samples(400))
    free = sum(int((~s.streams["text"]["special"]).sum()) for s in clean)
    made().corrupt(clean, DRAWS)
    rows = [s.targets["word_structure"]["rows"].index for s in clean]
    share = sum(map(len, rows)) / free
    trigrams = free * 0.05 / 3
    assert trigrams > 200
    assert abs(share - 0.05) < 4 * 0.05 * np.sqrt(1 / trigrams)
    for found in rows:
        assert len(found) % 3 == 0
        assert len(set(found.tolist())) == len(found)
        assert all((np.diff(stretch) == 1).all() for stretch in found.reshape(-1, 3))


def test_every_order_is_as_likely(tokenizer, make_samples):
    clean = sequences(tokenizer, make_samples(600))
    after = [sequence.copy() for sequence in clean]
    made(rate=0.5).corrupt(after, DRAWS)
    orders: Counter[tuple[int, ...]] = Counter()
    for before, now in zip(clean, after, strict=True):
        old, new = before.streams["text"]["input_ids"], now.streams["text"]["input_ids"]
        for rows in now.targets["word_structure"]["rows"].index.reshape(-1, 3):
            assert sorted(old[rows]) == sorted(new[rows])
            if len(set(old[rows].tolist())) == 3:
                orders[tuple(int(np.flatnonzero(old[rows] == token)[0]) for token in new[rows])] += 1
    total = sum(orders.values())
    assert orders.keys() == set(itertools.permutations(range(3)))
    assert all(abs(n - total / 6) < 4 * np.sqrt(total * 5 / 36) for n in orders.values())


def test_what_is_masked_is_not_shuffled_and_the_rest_stays(tokenizer, make_samples):
    clean = sequences(tokenizer, make_samples(40))
    masked = Mlm(tokenizer)
    masked.corrupt(clean, Draws(0, "task", "mlm", number=(0,)))
    before = [sequence.copy() for sequence in clean]
    made(rate=0.3, length=4).corrupt(clean, DRAWS)
    for old, new in zip(before, clean, strict=True):
        rows = new.targets["word_structure"]["rows"].index
        assert len(rows)
        assert not old.streams["text"]["taken"][rows].any()
        assert not old.streams["text"]["special"][rows].any()
        np.testing.assert_array_equal(new.targets["word_structure"]["labels"], old.streams["text"]["input_ids"][rows])
        others = np.setdiff1d(np.arange(old.length("text")), rows)
        np.testing.assert_array_equal(
            new.streams["text"]["input_ids"][others], old.streams["text"]["input_ids"][others]
        )


def test_a_text_shorter_than_a_stretch_is_left_as_it_is(tokenizer):
    (short,) = sequences(tokenizer, [{"key": "a", "draw": (0,), "text": "Oslo"}])
    before = short.copy()
    made(rate=1.0, length=50).corrupt([short], DRAWS)
    assert len(short.targets["word_structure"]["rows"]) == 0
    np.testing.assert_array_equal(short.streams["text"]["input_ids"], before.streams["text"]["input_ids"])


def test_stretches_that_no_sequence_has_are_refused():
    spec = {"objective": "word_structure", "length": 20}
    assert build("objective", spec, max_length=20).length == 20
    with pytest.raises(
        WorkbenchError, match=r"length = 20: a sequence of at most 16 tokens has no stretch .* so nothing"
    ):
        build("objective", spec, max_length=16)

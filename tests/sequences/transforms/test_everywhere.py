"""The transform `everywhere`: which rows it marks, and that the mark goes where rows go."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch

from tests.contracts.cases import TransformCase
from workbench.core.keyed import Draws
from workbench.models.context import Context
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.rows import insert, take
from workbench.sequences.sequence import Sequence, text_fields
from workbench.sequences.transforms.everywhere import EverywhereTransform

CASE = TransformCase({"rows": "special"}, {"dropped": "nothing is left out"}, adds=("text.everywhere",))
DRAWS = Draws(0, "task", "transform", number=(0,))
QUIET = {"dropout": 0.0, "attention_dropout": 0.0}


def pair(first: int = 2, second: int = 3, **more: Any) -> Sequence:
    """[CLS] a [SEP] b [SEP]."""
    types = np.array([0] * (first + 2) + [1] * (second + 1))
    special = np.zeros(len(types), np.bool_)
    special[[0, first + 1, -1]] = True
    return Sequence(
        {"text": {**text_fields(np.arange(len(types)), token_type_ids=types, special=special), **more}}, (0,)
    )


def marked(rows: Literal["first", "special", "first_segment"], sequence: Sequence) -> list[int]:
    (made,) = EverywhereTransform(rows)([sequence], DRAWS)
    found: list[int] = made.streams["text"]["everywhere"].tolist()
    return found


def test_which_rows_are_marked() -> None:
    assert marked("first", pair()) == [1, 0, 0, 0, 0, 0, 0, 0]
    assert marked("special", pair()) == [1, 0, 0, 1, 0, 0, 0, 1]
    assert marked("first_segment", pair()) == [1, 1, 1, 1, 0, 0, 0, 0]
    alone = Sequence({"text": text_fields(np.arange(4))}, (0,))
    assert marked("first_segment", alone) == [1, 0, 0, 0]


def test_several_first_rows_are_marked_of_each_packed_text() -> None:
    (made,) = EverywhereTransform(count=3)([pair(doc=np.array([1, 1, 2, 2, 2, 2, 2, 2]))], DRAWS)
    assert made.streams["text"]["everywhere"].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("rows", ["first", "special", "first_segment"])
def test_each_packed_text_has_its_own_and_empty_ones_none(rows: Any) -> None:
    doc = np.array([1, 1, 1, 1, 2, 2, 2, 2])
    if rows == "first":
        assert marked(rows, pair(doc=doc)) == [1, 0, 0, 0, 1, 0, 0, 0]
    assert marked(rows, Sequence({"text": text_fields(np.zeros(0, np.int64))}, (0,))) == []


def test_the_mark_follows_its_row_and_new_rows_have_none() -> None:
    sequence = pair()
    marked("special", sequence)
    insert(sequence, [1, 4, 8])
    assert sequence.streams["text"]["everywhere"].tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    take(sequence, [9, 0, 1])
    assert sequence.streams["text"]["everywhere"].tolist() == [1, 1, 0]
    other = Sequence({"text": text_fields(np.arange(2))}, (1,))
    batch = collate([sequence, other])
    assert batch.streams["text"].fields["everywhere"].tolist() == [1, 1, 0, 0, 0]
    assert batch.pick({"text": [1, 0]}).streams["text"].fields["everywhere"].tolist() == [0, 0, 1, 1, 0]


@torch.no_grad()
def test_what_is_far_away_reaches_a_row_by_way_of_one_that_is_everywhere() -> None:
    """Two layers with a window of 1: the last token changes the second row's state by way of the first row alone."""
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 16, "vocab_size": 40, "max_positions": 40, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "window": 1, **QUIET, "repeat": 2}
    network = Network(NetworkSpec({"text": text}, [layer], init_range=0.3)).eval()

    def state(last: int, everywhere: bool) -> torch.Tensor:
        sequence = Sequence({"text": text_fields(np.array([*range(29), last]))}, (0,))
        made = EverywhereTransform()([sequence], DRAWS) if everywhere else [sequence]
        batch = collate(made)
        return network(batch, Context(batch))["text"][1]

    torch.testing.assert_close(state(30, False), state(31, False), atol=0, rtol=0)
    assert not torch.allclose(state(30, True), state(31, True), atol=1e-3)

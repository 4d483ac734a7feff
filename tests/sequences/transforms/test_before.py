"""The transform `before`: positions and visibility run on over the streams of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.attention.visibility import visible
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields
from workbench.sequences.transforms.before import BeforeTransform
from workbench.sequences.transforms.queries import LAST

EXCUSED = "it moves the positions of the text, which the contracts want unchanged"
DRAWS = Draws(0, "transform", number=())


def made(*, causal: bool, prompt: int = 2, text: int = 3) -> Sequence:
    fields: dict[str, Any] = text_fields(np.arange(text))
    if causal:
        fields["rank"] = np.arange(text)
    rows = {"input_ids": np.arange(prompt)}
    return Sequence({"text": fields} | ({"prompt": rows} if prompt else {}), (0,))


def seen(sequence: Sequence) -> np.ndarray:
    """Who sees whom among the prompt's and the text's rows, as in a joint layer [rows, rows]."""
    streams = collate([sequence]).streams
    fields = [streams[name].fields for name in ("prompt", "text")]
    pairs = [[(visible(q, k), len(q["position_ids"]), len(k["position_ids"])) for k in fields] for q in fields]
    return np.block([[np.ones((q, k), bool) if v is None else v.numpy() for v, q, k in row] for row in pairs])


def test_a_text_read_from_left_to_right_sees_what_is_before_it() -> None:
    [one] = BeforeTransform(["prompt", "text"])([made(causal=True)], DRAWS)
    assert one.streams["prompt"]["position_ids"].tolist() == [0, 1]
    assert one.streams["text"]["position_ids"].tolist() == [2, 3, 4]
    assert (seen(one) == np.tril(np.ones((5, 5), bool))).all()
    [one] = BeforeTransform(["prompt", "text"], whole=True)([made(causal=True)], DRAWS)
    wanted = np.tril(np.ones((5, 5), bool))
    wanted[:2, :2] = True
    assert (seen(one) == wanted).all()


def test_all_rows_of_a_text_read_in_both_directions_see_each_other() -> None:
    for whole in (False, True):
        [one] = BeforeTransform(["prompt", "text"], whole)([made(causal=False)], DRAWS)
        assert seen(one).all()
        assert one.streams["text"]["position_ids"].tolist() == [2, 3, 4]


def test_a_sequence_without_the_first_stream_is_unchanged() -> None:
    [one] = BeforeTransform(["prompt", "text"])([made(causal=True, prompt=0)], DRAWS)
    assert one.streams["text"]["position_ids"].tolist() == one.streams["text"]["rank"].tolist() == [0, 1, 2]


def test_the_first_rows_of_a_text_may_lead() -> None:
    """A begin token before the image: it sees no image, and all rows of the text behind the image do."""
    [one] = BeforeTransform(["prompt", "text"], lead=1)([made(causal=True)], DRAWS)
    assert one.streams["text"]["position_ids"].tolist() == one.streams["text"]["rank"].tolist() == [0, 3, 4]
    assert one.streams["prompt"]["position_ids"].tolist() == one.streams["prompt"]["rank"].tolist() == [1, 2]
    order = [2, 0, 1, 3, 4]  # the rows in the order of their positions
    assert (seen(one)[np.ix_(order, order)] == np.tril(np.ones((5, 5), bool))).all()
    [one] = BeforeTransform(["prompt", "text"], lead=9)([made(causal=True)], DRAWS)
    assert one.streams["prompt"]["position_ids"].tolist() == [3, 4]
    [one] = BeforeTransform(["prompt", "text"], lead=1)([made(causal=True, prompt=0)], DRAWS)
    assert one.streams["text"]["position_ids"].tolist() == [0, 1, 2]


def test_one_row_that_is_read_from_left_to_right_is_not_seen_from_before() -> None:
    [one] = BeforeTransform(["prompt", "text"])([made(causal=True, text=1)], DRAWS)
    assert (seen(one) == np.tril(np.ones((3, 3), bool))).all()


def test_rows_that_no_other_stream_sees_stay_so() -> None:
    sequence = made(causal=True)
    sequence.streams["prompt"]["rank"] = np.array([LAST, 0])
    for whole in (False, True):
        [one] = BeforeTransform(["prompt", "text"], whole)([sequence.copy()], DRAWS)
        assert one.streams["prompt"]["rank"].tolist() == [LAST, 0 if whole else 1]
        assert not seen(one)[1:, 0].any()
        assert seen(one)[2:, 1].all()


def test_a_stream_that_is_named_twice_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="allowed: each of them once"):
        BeforeTransform(["text", "text"])

"""The builder `dialogue`: turns, roles, and what of them is cut."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.builders.dialogue import DialogueBuilder, _fitted
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it reads turns, which the samples of the contracts don't have"
DRAWS = Draws(0, "t", "builder", number=(0,))
SAYS = ["people in hamburg", "old paris", "the old river", "small boats", "where"]


def said(turns: int, **more: object) -> dict[str, object]:
    return {"key": "a", "draw": (3,), "turns": SAYS[:turns], **more}


def turns_of(tokenizer: Tokenizer, sequence: Sequence) -> list[tuple[int, str]]:
    """The role of each turn, and what is said; the end of a turn has its role."""
    text = sequence.streams["text"]
    assert text["input_ids"][0] == tokenizer.id("cls")
    ends = np.flatnonzero(text["input_ids"] == tokenizer.id("sep"))
    assert text["special"][[0, *ends]].all()
    assert text["special"].sum() == 1 + len(ends)
    found = []
    for begin, end in zip([1, *(ends[:-1] + 1)], ends, strict=True):
        (role,) = set(text["token_type_ids"][begin : end + 1].tolist())
        found.append((role, tokenizer.decode(text["input_ids"][begin:end])))
    assert text["position_ids"].tolist() == list(range(len(text["input_ids"])))
    return found


def test_who_speaks_first_has_one_role_and_all_others_the_other(tokenizer: Tokenizer) -> None:
    for speakers, roles in ((None, [0, 1, 0]), (["b", "b", "a"], [0, 0, 1]), (["x", "y", "z"], [0, 1, 1])):
        more = {} if speakers is None else {"speakers": speakers}
        (made,) = DialogueBuilder(tokenizer, 64)([said(3, **more)], DRAWS)
        assert turns_of(tokenizer, made) == list(zip(roles, SAYS, strict=False))


def test_a_long_dialogue_is_several_sequences_and_nothing_is_lost(tokenizer: Tokenizer) -> None:
    builder, sample = DialogueBuilder(tokenizer, 64), said(5, speakers=["a", "b", "b", "a", "b"], labels={"it": 1})
    made = builder([sample], DRAWS)
    assert [turns_of(tokenizer, s) for s in made] == [
        [(0, SAYS[0]), (1, SAYS[1])],
        [(0, SAYS[2]), (1, SAYS[3]), (0, SAYS[4])],
    ]
    assert len({s.draw for s in made}) == 2
    assert builder.take_dropped() == {}
    pieces = builder.arrange([sample], DRAWS)  # what objectives arrange
    assert [piece["turns"] for piece in pieces] == [SAYS[:2], SAYS[2:]]
    again = builder(pieces, DRAWS)
    assert [turns_of(tokenizer, s) for s in again] == [turns_of(tokenizer, s) for s in made]
    assert [len(piece["turns"]) for piece in DialogueBuilder(tokenizer, 64, turns=2).arrange([said(4)], DRAWS)] == [
        2,
        2,
    ]


def test_turns_that_are_too_long_are_cut_at_their_ends_and_counted(tokenizer: Tokenizer) -> None:
    builder = DialogueBuilder(tokenizer, 16)
    sample = {"key": "a", "draw": (0,), "turns": ["small " * 30, "old", "river " * 40]}
    (made,) = builder([sample], DRAWS)
    assert made.length("text") <= 16
    whole = sum(len(tokenizer.encode(turn)) for turn in sample["turns"])
    assert builder.take_dropped() == {"truncated tokens": whole - (made.length("text") - 4)}
    assert turns_of(tokenizer, made)[1] == (1, "old")


def test_the_longest_are_cut_to_the_greatest_bound_that_fits() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        lengths, capacity = rng.integers(0, 30, rng.integers(1, 5)), int(rng.integers(4, 60))
        bounds = [b for b in range(100) if np.minimum(lengths, b).sum() <= capacity]
        np.testing.assert_array_equal(_fitted(lengths, capacity), np.minimum(lengths, max(bounds)))


def test_a_sample_without_turns_or_with_other_speakers_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match=r"no 'turns' .*workbench prepare text .*\"turns\": \["):
        DialogueBuilder(tokenizer, 64)([{"key": "a", "draw": (0,), "text": "people"}], DRAWS)
    with pytest.raises(WorkbenchError, match="3 turns and 1 speakers; store one for each turn"):
        DialogueBuilder(tokenizer, 64)([said(3, speakers=["a"])], DRAWS)

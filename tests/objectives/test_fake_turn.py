"""fake_turn: which dialogues get a turn of another one."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.core.keyed import Draws
from workbench.objectives.fake_turn import FakeTurn

EXCUSED = "it reads turns, which the samples of the contracts don't have"


def dialogues(count: int, number: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "key": f"d{i}",
            "corpus": "c",
            "draw": (number, i),
            "turns": [f"{number} {i} {j}" for j in range(2 + i % 3)],
            "speakers": ["a", "b", "a", "b"][: 2 + i % 3],
        }
        for i in range(count)
    ]


def made() -> FakeTurn:
    objective = FakeTurn()
    objective.name = "fake_turn"
    return objective


def draws(number: int = 0) -> Draws:
    return Draws(0, "task", "fake_turn", number=(number,))


def test_half_of_the_dialogues_have_one_turn_of_another() -> None:
    labels, places = [], []
    for number in range(30):
        samples = dialogues(30, number)
        for old, new in zip(samples, made().arrange(samples, draws(number)), strict=True):
            label = new["labels"]["fake_turn"]
            changed = [j for j, (a, b) in enumerate(zip(old["turns"], new["turns"], strict=True)) if a != b]
            assert len(changed) == label
            assert new["speakers"] == old["speakers"]
            if changed:
                other = new["turns"][changed[0]].split()
                assert other[0] == str(number)
                assert other[1] != old["key"][1:]
                places += changed if len(old["turns"]) == 3 else []
            labels.append(label)
    total = len(labels)
    assert abs(sum(labels) - total / 2) < 4 * np.sqrt(total / 4)
    assert all(abs(places.count(j) - len(places) / 3) < 4 * np.sqrt(len(places) * 2 / 9) for j in range(3))


def test_a_single_turn_and_a_dialogue_alone_have_no_label() -> None:
    alone = {"key": "x", "corpus": "c", "draw": (0,), "turns": ["only this"]}
    (first, *_) = made().arrange([alone, *dialogues(8)], draws())
    assert first == {**alone, "labels": {"fake_turn": -100}}
    pieces = [{**dialogues(1)[0], "draw": (i,)} for i in range(12)]  # of one record
    assert {s["labels"]["fake_turn"] for s in made().arrange(pieces, draws())} == {0, -100}


def test_labels_do_not_depend_on_who_else_is_there() -> None:
    samples = dialogues(16)
    whole = {s["key"]: s["labels"]["fake_turn"] for s in made().arrange(samples, draws())}
    some = {s["key"]: s["labels"]["fake_turn"] for s in made().arrange(samples[:7], draws())}
    assert some == {key: whole[key] for key in some}

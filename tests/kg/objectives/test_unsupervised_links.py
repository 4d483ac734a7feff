"""Links that nobody supervised teach `kg.entity_linking` nothing; the warning says which step marks the right ones."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from kg.objectives.entity_linking import EntityLinking
from workbench.tasks.objective import Objective
from workbench.training.watch import FirstSteps


@pytest.mark.parametrize(
    ("objective", "told"), [(EntityLinking(), "prepare link CORPUS .*--supervise"), (Objective(), "does its data fit")]
)
def test_what_finds_no_label_says_what_to_do(objective: Objective, told: str, caplog: pytest.LogCaptureFixture) -> None:
    objectives = [
        SimpleNamespace(name=name, objective=each) for name, each in (("mlm", Objective()), ("it", objective))
    ]
    tasks: Any = {"text": SimpleNamespace(name="text", objectives=objectives)}
    result: Any = SimpleNamespace(losses={"mlm": 1.0})
    FirstSteps(tasks, {}, tells=True).add(["text"], result, last=True)
    (record,) = caplog.records
    assert record.message.startswith("objective it found no label in the first 1 steps; ")
    assert re.search(told, record.message)

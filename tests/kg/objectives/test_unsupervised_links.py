"""Links that nobody supervised teach `kg.entity_linking` nothing; the warning says which step marks the right ones."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kg.objectives.entity_linking import EntityLinking
from kg.sequences.transforms.candidates import CandidatesTransform
from workbench.core.errors import WorkbenchError
from workbench.pretraining.objective import Objective
from workbench.training.first_steps import FirstSteps


@pytest.mark.parametrize(
    ("objective", "reported"),
    [(EntityLinking(), "prepare link CORPUS .*--supervise"), (Objective(), "does its data fit")],
)
def test_what_finds_no_label_says_what_to_do(
    objective: Objective, reported: str, caplog: pytest.LogCaptureFixture
) -> None:
    objectives = [
        SimpleNamespace(name=name, objective=each) for name, each in (("mlm", Objective()), ("it", objective))
    ]
    tasks: Any = {"text": SimpleNamespace(name="text", objectives=objectives, components=[])}
    result: Any = SimpleNamespace(losses={"mlm": 1.0})
    FirstSteps(tasks, {}, logs=True, reached=lambda _: []).add(["text"], result, last=True)
    (record,) = caplog.records
    assert record.message.startswith("objective it found no label in the first 1 steps; ")
    assert re.search(reported, record.message)


@pytest.mark.parametrize("losses", [{}, {"mlm": 1.0}])
def test_what_a_control_removed_is_reported(losses: dict[str, float], caplog: pytest.LogCaptureFixture) -> None:
    objectives = [
        SimpleNamespace(name=name, objective=each) for name, each in (("mlm", Objective()), ("it", EntityLinking()))
    ]
    components = [CandidatesTransform({"Q64": 0}, control="no-kg")]
    tasks: Any = {"text": SimpleNamespace(name="text", objectives=objectives, components=components)}
    first, result = (
        FirstSteps(tasks, {}, control="no-kg", logs=True, reached=lambda _: []),
        cast(Any, SimpleNamespace(losses=losses)),
    )
    reported = r"ontrol no-kg removes the contribution of CandidatesTransform"
    if losses:
        first.add(["text"], result, last=True)
        assert re.search(f"objective it found no label .*{reported}", caplog.records[0].message)
        assert "--supervise" not in caplog.text
    else:
        with pytest.raises(WorkbenchError, match=f"nothing was learned .*{reported}.* without the control") as raised:
            first.add(["text"], result, last=True)
        assert "sequence.targets" not in str(raised.value)

"""What a component receives is in its context, and what is known of it is kept next to it, not on it."""

from __future__ import annotations

import copy
import gc
import weakref
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch import nn

from tests.contracts.material import tokenizer
from workbench.components import build_context
from workbench.components.build_context import (
    BuildRecord,
    build_record_of,
    building,
    components_within,
    copied,
    entered,
    known_as,
    mark,
    named,
    note,
    noted,
    record,
)
from workbench.components.building import build

PLACE = "tasks.text.objectives[0]"
LOOKING = """
from workbench.components.build_context import building, note
from workbench.sequences.protocols import Masking

class Looking(Masking):
    def __init__(self, tokenizer, rate=0.5):
        self.context, self.tokenizer = building(), tokenizer
        note("graph", "a/graph", "1234")

    def __call__(self, sequences, stream, rate, numbers):
        return []
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An objective whose masking strategy keeps the context in which it was built, and opens a graph."""
    (tmp_path / "looking_masking.py").write_text(LOOKING)
    monkeypatch.syspath_prepend(str(tmp_path))
    return {"objective": "mlm", "masking": "looking_masking:Looking"}


def test_what_a_component_of_a_component_receives_is_in_its_context(spec: dict[str, str]) -> None:
    made = build("objective", spec, PLACE, tokenizer=tokenizer(), seed=3, max_length=64)
    context = made.masking.context
    assert context.place == f"{PLACE}.masking"
    assert context.given == {"tokenizer": tokenizer(), "seed": 3, "max_length": 64}
    assert made.masking.tokenizer is tokenizer()
    assert building() == build_context.BuildContext()


def test_what_was_opened_belongs_to_the_component_that_did_and_to_who_collects_it(spec: dict[str, str]) -> None:
    with noted() as opened:
        made = build("objective", spec, PLACE, tokenizer=tokenizer())
        with noted() as inner:
            note("graph", "other/graph", "5678")
    own, within = build_record_of(made), build_record_of(made.masking)
    assert (own.name, own.kind, own.opened) == (f"{PLACE}: objective 'mlm'", "objective", frozenset())
    assert own.inside == (made.masking,)
    assert (within.kind, within.opened) == ("masking", {"graph"})
    assert (opened, inner) == ({"graph": {"a/graph": "1234"}}, {"graph": {"other/graph": "5678"}})
    assert not {"named_in_recipe", "made_by_build"} & vars(made).keys()


def test_a_failed_component_leaves_no_context_behind() -> None:
    with pytest.raises(RuntimeError), entered(building().below("model", {"seed": 1})):
        raise RuntimeError
    assert building() == build_context.BuildContext()


@dataclass(frozen=True)
class Equal:
    """Two of these are equal, and not the same."""

    size: int = 1


def test_records_are_by_identity_and_end_with_the_component() -> None:
    one, other = mark(Equal(), "steps[0]"), Equal()
    assert (named(one), named(other), named(())) == ("steps[0]", "Equal", "tuple")
    record(one, BuildRecord("steps[1]", "step"))
    mark(one, "steps[2]")
    assert (named(one), build_record_of(one).kind) == ("steps[2]", "step")
    kept, gone = len(build_context._records), weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
    assert len(build_context._records) < kept
    slots = mark((), "nothing")
    assert build_record_of(slots) is None


def test_copies_are_known_as_the_originals() -> None:
    network = nn.Sequential(record(nn.Linear(2, 2), BuildRecord("model.layers[0]: layer 'map'", "layer")), nn.ReLU())
    assert build_record_of(copy.deepcopy(network)[0]) is None
    made = copied(network)
    assert made[0] is not network[0]
    assert named(made[0]) == "model.layers[0]: layer 'map'"
    assert components_within(made) == [made[0]]
    assert named(known_as(copy.copy(network[0]), network[0])) == named(network[0])
    assert named(known_as(Equal(), Equal())) == "Equal"

"""Small recipes on the pretend device: no mix of devices, the CPU's values, few waits, few launches.

A recipe of each mechanism is in the gate; `make test-all` has every recipe. The allowed numbers are in `ratchets.json`,
and `python -m tests.gpu_without_gpu ratchets` writes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.gpu_without_gpu.ratchets import SLACK, allowed
from workbench.recipe.reading import recipe_names

pytestmark = pytest.mark.simulator

GATE = ("bert", "gpt", "modernbert", "k-bert", "ernie-thu", "t5", "xlnet", "clip", "vilt", "speechbert")
"""All visible, causal, windows, trees, entities, relations and two stacks, permutations with two streams, a loss over
the step, one stack over text and image, recurrent layers."""
FLOAT32, BFLOAT16 = 1e-5, 3e-2
SCATTERING = {"knowbert-linkers": 0.15}
"""Recipes whose random vectors, in the small size, make 16 bit scatter."""
GROUP = 9
"""So many recipes share a process."""

_others = [name for name in recipe_names() if name not in GATE]
_groups = [list(GATE), *(_others[start : start + GROUP] for start in range(0, len(_others), GROUP))]
group_of = {name: group for group in _groups for name in group}
every_recipe = pytest.mark.parametrize(
    "name", [*GATE, *(pytest.param(name, marks=pytest.mark.slow) for name in _others)]
)
Steps = Callable[[list[str]], dict[str, Any]]


@pytest.fixture
def found(name: str, steps_of: Steps) -> dict[str, Any]:
    result: dict[str, Any] = steps_of(group_of[name])[name]
    return result


def limit_of(kind: str, name: str) -> int:
    """The allowed number of a recipe; a new recipe has none until it was measured."""
    limits = allowed(kind)
    if name not in limits:
        pytest.skip(f"{name} has no limit yet: python -m tests.gpu_without_gpu ratchets {name}")
    return int(limits[name])


@every_recipe
def test_two_steps_run_and_agree_with_the_cpu(name: str, found: dict[str, Any]) -> None:
    assert not found["errors"]
    assert found["float32"] < FLOAT32
    assert found["bfloat16"] < SCATTERING.get(name, BFLOAT16)


@every_recipe
def test_the_host_waits_as_often_as_is_allowed(name: str, found: dict[str, Any]) -> None:
    """The goal is 1: what the step was, at its end."""
    measured, limit = found["waits"], limit_of("waits", name)
    sites = "\n".join(f"  {count} x {site}" for site, count in found["sites"].items())
    assert measured <= limit, f"{name} waits {measured} times a step, {limit} are allowed:\n{sites}"
    assert measured == limit, (
        f"{name} waits {measured} times a step, fewer than the {limit} in ratchets.json: lower it "
        "(python -m tests.gpu_without_gpu ratchets)"
    )


@every_recipe
def test_a_step_launches_as_many_kernels_as_is_allowed(name: str, found: dict[str, Any]) -> None:
    made_with = allowed("made_with")["torch"]
    if made_with != torch.__version__:
        pytest.skip(f"launches were counted with torch {made_with}, this is {torch.__version__}")
    measured, limit = found["launches"], limit_of("launches", name)
    assert measured <= limit, f"{name} launches {measured} kernels a step, {limit} are allowed"
    assert measured >= limit * (1 - SLACK), (
        f"{name} launches {measured} kernels a step, far fewer than the {limit} in ratchets.json: lower it "
        "(python -m tests.gpu_without_gpu ratchets)"
    )


TABLES = ["ernie-thu:no-room", "ernie-thu:sharded"]


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_entities_are_looked_up_before_the_forward(name: str, steps_of: Steps) -> None:
    """The host waits for no row, neither of a frozen table in its file nor of a sharded one that is trained."""
    found = steps_of(TABLES)[name]
    assert not found["errors"]
    assert found["float32"] < FLOAT32
    assert found["waits"] == allowed("waits")["ernie-thu"], found["sites"]


def test_no_limit_is_of_a_recipe_that_is_gone() -> None:
    assert set(allowed("waits")) == set(allowed("launches")) <= set(recipe_names())

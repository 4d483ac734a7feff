"""No head and no layer asks the device for a number: a step runs on torch's `meta` device, where there are none.

There `item`, `tolist`, `nonzero` and selections by a mask raise, and whatever goes by values on a CPU alone is passed
over, as on a GPU. Copies that wait, and kernels of a GPU, are not seen here.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from tests.recipes.test_recipes import small_recipe, small_root
from workbench.recipe.reading import recipe_names

WAITS = {
    "albef": "vision.hard_itm draws texts on the device, and attention has to know on the host how long these are",
}
"""Recipes with a wait that stays, and why."""


def step(name: str, world: Any) -> None:
    """Forward and backward of one micro-batch of each task."""
    root, batches = small_root(small_recipe(name, world))
    root.train().to("meta")
    for micro in batches.values():
        outputs = root(micro.to("meta"), list(micro.counts))
        torch.stack([output.loss for output in outputs.values()]).sum().backward()


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.autocast` knows no meta device; what heads switch off is off."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


@pytest.mark.parametrize("name", sorted({*recipe_names()} - {*WAITS}))
def test_a_step_asks_the_device_for_nothing(name: str, world: Any) -> None:
    step(name, world)


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_that_stays_is_still_there(name: str, world: Any) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        step(name, world)

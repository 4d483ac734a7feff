"""Every system that makes a model smaller: an interrupted run equals a whole one, bit for bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.test_recipes import small_recipe
from workbench.recipe.reading import shipped
from workbench.training.verify_resume import verify_resume

NAMES = [name for name, path in shipped().items() if path.parent.name == "compression"]


@pytest.mark.parametrize("name", NAMES)
def test_it_resumes_exactly(name: str, world: Any, tmp_path: Path) -> None:
    small = small_recipe(name, world)
    train = dataclasses.replace(small.train, max_steps=4, lr=1e-3, groups=[])
    verdict = verify_resume(dataclasses.replace(small, train=train), tmp_path / "compared", steps=4)
    assert verdict.equal, verdict

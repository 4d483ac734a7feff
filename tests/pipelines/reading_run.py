"""Tiny runs that read a prepared file next to their corpus."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.runs.names import DATA
from workbench.training.pretrain import pretrain


def trained(corpora: Path, objective: str, steps: int = 1) -> Path:
    """A run with this objective on the corpus `text`, in the folder `run` next to it, which continues to so many
    steps."""
    values = [f"vars.data={corpora}", f"tasks.text.objectives=[{objective}]", "train.save_every=1"]
    values += [f"train.max_steps={steps}", "train.lr_schedule=constant", "train.num_workers=0"]
    return pretrain(load_recipe("tiny-text", values), corpora / "run")


def continues_with_no_other(corpora: Path, objective: str, file: Path, change: Callable[[], object], kind: str) -> None:
    """The run notes the file that its objective reads, and refuses to continue once it was changed."""
    recorded = json.loads((trained(corpora, objective) / DATA).read_text())
    assert str(file) in recorded["read"][kind]
    change()
    with pytest.raises(WorkbenchError, match=kind):
        trained(corpora, objective, 2)

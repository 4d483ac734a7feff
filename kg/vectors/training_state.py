"""The state of a training between two epochs, in a file next to its vectors, so that a killed training resumes."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic

log = logging.getLogger(__name__)

EVERY = 300.0
"""Seconds between two states that are written."""


class TrainingStateFile:
    """`about` says which training it is; a state of another one is refused. What is stored is tensors and numbers."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self.about = dict(about)
        self._written = time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """The last state; None where there is none.

        Raises:
            WorkbenchError: it is of another training, or damaged.
        """
        if not self.path.exists():
            return None
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
            about, state = found["about"], found["state"]
        except (RuntimeError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
            raise WorkbenchError(f"{self.path} is no state of a training; remove it to start again") from error
        differing = sorted(name for name in about.keys() | self.about if about.get(name) != self.about.get(name))
        if differing:
            raise WorkbenchError(
                f"{self.path} is the state of another training (it differs in {', '.join(differing)}); finish that "
                "one with its own options, or remove the file to start again"
            )
        log.info("%s: continues after epoch %d", self.path, state["epoch"])
        return dict(state)

    @property
    def due(self) -> bool:
        """Whether it is time to write one."""
        return time.monotonic() - self._written >= EVERY

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the state."""
        with atomic(self.path) as file:
            torch.save({"about": self.about, "state": dict(state)}, file)
        self._written = time.monotonic()

    def remove(self) -> None:
        """The training is over."""
        self.path.unlink(missing_ok=True)

"""Checkpoints of a run: atomic folders with everything needed to go on, the last few and the best.

    checkpoints/step-N/model.safetensors   weights (shared tensors once)
    checkpoints/step-N/trainer.pt          optimiser moments by parameter name (tensors only)
    checkpoints/step-N/state.json          step, best metric, running sums, versions
    best/                                  the weights and state of the step with the best held-out metric

N counts finished updates. Random generators and the reader need no state: both are functions of the step.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.training.optimizer import load_optimizer_state, optimizer_state
from workbench.training.weights import load_weights, read_weights, save_weights, sync_file

MODEL, TRAINER, STATE = "model.safetensors", "trainer.pt", "state.json"
State = dict[str, Any]


class Checkpoints:
    """The checkpoints of a run folder. Only the main rank writes."""

    def __init__(self, run: Path, keep_last: int = 2) -> None:
        if keep_last < 1:
            raise WorkbenchError(f"train.keep_last = {keep_last}; allowed: 1 or more")
        self.folder = run / "checkpoints"
        self.best = run / "best"
        self.keep_last = keep_last

    def steps(self) -> list[int]:
        """The steps that have a complete checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        found = (re.fullmatch(r"step-(\d+)", entry.name) for entry in self.folder.iterdir() if entry.is_dir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def latest(self) -> Path | None:
        steps = self.steps()
        return self.path(steps[-1]) if steps else None

    def clean(self) -> None:
        """Remove what an interrupted save left behind, and finish an interrupted exchange of `best`."""
        old = _hidden(self.best, "old")
        if old.is_dir() and not self.best.exists():
            old.rename(self.best)
        for folder in (self.folder, self.best.parent):
            if folder.is_dir():
                for entry in folder.glob(".*.tmp"):
                    shutil.rmtree(entry)
        shutil.rmtree(old, ignore_errors=True)

    def save(self, root: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> Path:
        """Write `step-N` under a temporary name, rename it, then drop the oldest beyond `keep_last`.

        Raises:
            WorkbenchError: the disk is full or not writable; nothing half-written keeps its final name.
        """
        path = self.path(state["step"])
        draft = _hidden(path, "tmp")
        try:
            self._write(draft, root, state)
            torch.save(optimizer_state(root, optimizer), draft / TRAINER)
            sync_file(draft / TRAINER)
            if path.exists():
                shutil.rmtree(path)
            draft.rename(path)
            _sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise WorkbenchError(f"could not write {path}: {error}; earlier checkpoints are whole") from error
        for step in self.steps()[: -self.keep_last]:
            _remove(self.path(step))
        return path

    def save_best(self, root: nn.Module, state: State) -> None:
        """Replace `best/` with these weights."""
        draft, old = _hidden(self.best, "tmp"), _hidden(self.best, "old")
        try:
            self._write(draft, root, state)
            if self.best.exists():
                shutil.rmtree(old, ignore_errors=True)
                self.best.rename(old)
            draft.rename(self.best)
            shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            self.clean()
            raise WorkbenchError(f"could not write {self.best}: {error}") from error

    def _write(self, draft: Path, root: nn.Module, state: State) -> None:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        save_weights(draft / MODEL, root.state_dict())
        (draft / STATE).write_text(json.dumps(state, indent=2))
        sync_file(draft / STATE)


def read_state(folder: Path) -> State:
    """`state.json` of a checkpoint.

    Raises:
        WorkbenchError: it is missing or damaged.
    """
    try:
        return json.loads((folder / STATE).read_text())
    except (OSError, ValueError) as error:
        raise WorkbenchError(f"{folder} is no whole checkpoint ({error}); remove it to use an earlier one") from error


def restore(folder: Path, root: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Load weights and optimiser from a checkpoint; returns its state.

    Raises:
        WorkbenchError: a damaged checkpoint, or one of another model.
    """
    state = read_state(folder)
    load_weights(root, read_weights(folder / MODEL), str(folder))
    load_optimizer_state(root, optimizer, _read_moments(folder / TRAINER))
    return state


def _read_moments(path: Path) -> dict[str, dict[str, Tensor]]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise WorkbenchError(f"{path} is damaged ({reason}); remove {path.parent} to use the one before") from error


def _hidden(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}")


def _remove(path: Path) -> None:
    """Take a checkpoint away at once: rename first, so that no half-removed one keeps its name."""
    gone = _hidden(path, "tmp")
    shutil.rmtree(gone, ignore_errors=True)
    path.rename(gone)
    shutil.rmtree(gone)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

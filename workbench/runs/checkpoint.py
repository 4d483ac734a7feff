"""A checkpoint: a folder with everything that is needed to resume, written, checked and read.

    model.safetensors   weights (shared tensors once; without frozen weights: `workbench.runs.frozen_weights`)
    trainer.pt          optimizer moments by parameter name (tensors only)
    memory.safetensors  the memory of texts in continuous order, if there is one
    state.json          step, best metric, running sums, versions, checksums of all files

Random generators and the reader need no state: both are functions of the step. The files are compared with their
checksums before use: neither safetensors nor torch's files have any.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import check_file, sha256_of, sync, write_text
from workbench.optimization.optimizer_state import load_optimizer_state, optimizer_state
from workbench.runs.frozen_weights import FrozenNames, read_frozen
from workbench.runs.names import FROZEN, MEMORY, MODEL, STATE, TRAINER
from workbench.runs.weights import load_weights, read_weights, save_weights

CHECKSUMS, KEPT = "sha256", "kept"
NAME = re.compile("step-(0|[1-9][0-9]*)")
"""The name of a checkpoint's folder, with the number of finished updates. `best` has another name."""
State = dict[str, Any]


class DamagedError(WorkbenchError):
    """A checkpoint that differs from what was saved: incomplete, changed, or renamed."""


def write_checkpoint(
    draft: Path,
    root: nn.Module,
    state: State,
    kept: FrozenNames,
    optimizer: torch.optim.Optimizer | None = None,
    memory: dict[str, Tensor] | None = None,
) -> None:
    """Fill a folder with weights, moments (with an optimizer), the memory of texts, and the state.

    Everything is on the disk when this returns.

    Args:
        kept: the frozen weights, which are left out.
    """
    state = {**state, KEPT: kept} if kept else state
    save_weights(draft / MODEL, {name: tensor for name, tensor in root.state_dict().items() if name not in kept})
    if memory:
        save_weights(draft / MEMORY, memory)
    if optimizer is not None:
        _save_moments(draft / TRAINER, optimizer_state(root, optimizer))
    sums = {path.name: sha256_of(path) for path in sorted(draft.iterdir())}
    write_text(draft / STATE, json.dumps({**state, CHECKSUMS: {**sums, STATE: _checksum(state)}}, indent=2))
    sync(draft)


def _save_moments(path: Path, moments: dict[str, dict[str, Tensor]]) -> None:
    with path.open("wb") as file:
        try:
            torch.save(moments, file)
        except RuntimeError as error:  # torch replaces the error of the file by its own
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise
    sync(path)


def _checksum(state: State) -> str:
    """The checksum of the state as it is read back: as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def read_state(folder: Path) -> State:
    """The state of a checkpoint, compared with its checksum; the checksums of the other files are in `sha256`.

    Raises:
        DamagedError: it is missing, damaged, or of another step than in the folder's name.
        WorkbenchError: a folder, a pipe or a link to nothing has its name.
    """
    check_file(folder / STATE)
    try:
        state = json.loads((folder / STATE).read_text("utf-8"))
        sums = state[CHECKSUMS]
        whole = sums[STATE] == _checksum({key: value for key, value in state.items() if key != CHECKSUMS})
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DamagedError(f"{folder} is no whole checkpoint: {STATE} cannot be read ({_short(error)})") from error
    if not whole:
        raise DamagedError(f"{folder} is no whole checkpoint: {STATE} does not have the checksum it was saved with")
    named = NAME.fullmatch(folder.name)
    if named and int(named[1]) != state["step"]:
        raise DamagedError(f"{folder} was renamed: its state is of step {state['step']}")
    return state


def verify_checkpoint(folder: Path) -> State:
    """The state of a checkpoint (or of `best`) whose files all have their recorded checksums.

    Raises:
        DamagedError: a file is missing or was changed.
        WorkbenchError: a folder, a pipe or a link to nothing has the name of a file.
    """
    state = read_state(folder)
    for name, expected in state[CHECKSUMS].items():
        if name == STATE:
            continue
        check_file(folder / name)
        try:
            found = sha256_of(folder / name)
        except OSError as error:
            raise DamagedError(f"{folder} is no whole checkpoint: {name} cannot be read ({_short(error)})") from error
        if found != expected:
            raise DamagedError(f"{folder} is no whole checkpoint: {name} does not have the checksum it was saved with")
    return state


def read_checkpoint(folder: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint (or of `best`), compared with their checksum.

    Raises:
        DamagedError: they were changed; the message says what to do.
    """
    try:
        verify_checkpoint(folder)
    except DamagedError as error:
        raise DamagedError(f"{error}. Restore it from a copy, or move it away to use another checkpoint") from error
    return _weights(folder)


def frozen_of(folder: Path) -> FrozenNames:
    """The frozen weights, which a checkpoint does not contain."""
    return read_state(folder).get(KEPT, {})


def files_of(folder: Path) -> list[Path]:
    """The files with the weights of a checkpoint: its own file, and the file of the frozen weights."""
    return [folder / MODEL, *([_run_of(folder) / FROZEN] if frozen_of(folder) else [])]


def _weights(folder: Path) -> dict[str, Tensor]:
    return read_frozen(_run_of(folder), frozen_of(folder)) | read_weights(folder / MODEL)


def _run_of(folder: Path) -> Path:
    return folder.parent if NAME.fullmatch(folder.name) is None else folder.parent.parent


def restore(folder: Path, root: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Load weights and optimizer from a verified checkpoint; returns its state.

    Raises:
        WorkbenchError: a damaged checkpoint, or one of another model.
    """
    state = read_state(folder)
    load_weights(root, _weights(folder), str(folder))
    load_optimizer_state(root, optimizer, _read_moments(folder / TRAINER))
    return {key: value for key, value in state.items() if key != CHECKSUMS}


def read_memory(folder: Path) -> dict[str, Tensor]:
    """The memory of texts in continuous order, from a verified checkpoint."""
    return read_weights(folder / MEMORY) if (folder / MEMORY).exists() else {}


def _read_moments(path: Path) -> dict[str, dict[str, Tensor]]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise DamagedError(f"{path} is damaged ({_short(error)})") from error


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]

"""Checkpoints of a run: atomic folders with everything needed to go on, the last few and the best.

    checkpoints/step-N/model.safetensors   weights (shared tensors once; without those that never change: `kept.py`)
    checkpoints/step-N/trainer.pt          optimiser moments by parameter name (tensors only)
    checkpoints/step-N/memory.safetensors  what is remembered of the texts that are read on, where there are such
    checkpoints/step-N/state.json          step, best metric, running sums, versions, checksums of all
    best/                                  the weights and state of the step with the best held-out metric

N counts finished updates. Random generators and the reader need no state: both are functions of the step.
A checkpoint is compared with its checksums before it is used: neither safetensors nor torch's files have any.
"""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.errors import MachineError, WorkbenchError
from workbench.files.drafts import DRAFT_SUFFIX, check_file, check_folder, explained, sha256_of, sync, write_text
from workbench.runs.data_record import run_id
from workbench.runs.kept import Kept
from workbench.runs.names import BEST, CHECKPOINTS, DATA, MEMORY, MODEL, STATE, TRAINER
from workbench.runs.optimizer_state import load_optimizer_state, optimizer_state
from workbench.runs.weights import load_weights, read_weights, save_weights

logger = logging.getLogger(__name__)
CHECKSUMS, KEPT = "sha256", "kept"
NAME = re.compile("step-(0|[1-9][0-9]*)")
State = dict[str, Any]


class DamagedError(WorkbenchError):
    """A checkpoint that is not what was saved: incomplete, changed, or under another name."""


class Checkpoints:
    """The checkpoints of a run folder. Only the main rank writes.

    Args:
        kept: where the weights lie that the run doesn't change and its checkpoints don't hold.
    """

    def __init__(self, run: Path, keep_last: int = 2, kept: Kept | None = None) -> None:
        if keep_last < 1:
            raise WorkbenchError(f"train.keep_last = {keep_last}; allowed: 1 or more")
        self.run = run
        self.folder = run / CHECKPOINTS
        self.best = run / BEST
        self.keep_last = keep_last
        self.kept = kept

    def steps(self) -> list[int]:
        """The steps that have a complete checkpoint, ascending.

        Raises:
            WorkbenchError: something that is no folder has the name of one.
        """
        check_folder(self.folder)
        if not self.folder.exists():
            return []
        found = [match for entry in self.folder.iterdir() if (match := NAME.fullmatch(entry.name))]
        for match in found:
            check_folder(self.folder / match[0])
        return sorted(int(match[1]) for match in found)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def latest(self) -> Path | None:
        """The last checkpoint, as it lies there."""
        steps = self.steps()
        return self.path(steps[-1]) if steps else None

    def latest_whole(self) -> Path | None:
        """The last checkpoint that is what was saved; later ones that are not are put aside, with a warning.

        Raises:
            WorkbenchError: there are checkpoints, but none is whole, or it is of another run (nothing is touched then).
        """
        damaged: dict[Path, DamagedError] = {}
        for step in reversed(self.steps()):
            try:
                self._check_own(self.path(step), verify_checkpoint(self.path(step)))
            except DamagedError as error:
                damaged[self.path(step)] = error
                continue
            for path, reason in damaged.items():
                aside = _free(path.with_name(f"damaged-{path.name}"))
                path.rename(aside)
                logger.warning("%s; it is kept as %s, going on from step %d", reason, aside.name, step)
            return self.path(step)
        if damaged:
            listed = "\n".join(f"  {reason}" for reason in damaged.values())
            raise WorkbenchError(
                f"no checkpoint of {self.run} is whole:\n{listed}\nRestore one of them from a copy, or train in "
                "another folder"
            )
        return None

    def best_or_last(self) -> Path | None:
        """The checkpoint whose weights are used: `best` where it is this run's, else the last one.

        Raises:
            WorkbenchError: the last one is of another run.
        """
        last = self.latest()
        if last is not None:
            with suppress(DamagedError):  # is told by whoever reads it
                self._check_own(last, read_state(last))
        if self.best.is_dir() and (last is None or _same_run(self.best, last)):
            return self.best
        return last

    def _check_own(self, path: Path, state: State) -> None:
        """
        Raises:
            WorkbenchError: the folder is that of another run than the one that wrote this checkpoint.
        """
        own = run_id(self.run)
        if own is not None and state.get("run") != own:
            raise WorkbenchError(
                f"{path} is a checkpoint of run {state.get('run')}, but {self.run} is run {own} (so says {DATA}): it "
                "was copied here. Move it away; to train on from its weights, start a new run with model.init_from"
            )

    def clear_best(self) -> None:
        """Remove what an attempt without a checkpoint left: whoever starts anew does not begin with its `best`."""
        for folder in (self.best, _hidden(self.best, "old")):
            shutil.rmtree(folder, ignore_errors=True)

    def clean(self) -> None:
        """Remove what an interrupted save left behind, and finish an interrupted exchange of `best`."""
        old = _hidden(self.best, "old")
        if old.is_dir() and not self.best.exists():
            old.rename(self.best)
        for folder in (self.folder, self.run):
            for pattern in (".*.tmp", f".*{DRAFT_SUFFIX}"):
                for rest in folder.glob(pattern):
                    _delete(rest)
        shutil.rmtree(old, ignore_errors=True)

    def save(
        self, root: nn.Module, optimizer: torch.optim.Optimizer, state: State, memory: dict[str, Tensor] | None = None
    ) -> Path:
        """Write `step-N` under a temporary name, rename it, then drop the oldest beyond `keep_last`.

        Raises:
            MachineError: the disk is full or not writable; nothing half-written stays, earlier checkpoints are whole.
        """
        path = self.path(state["step"])
        with self._draft(path) as draft:
            if memory:
                save_weights(draft / MEMORY, memory)
            _write(draft, root, state, self.kept, optimizer)
            if path.exists():
                shutil.rmtree(path)
            draft.rename(path)
            sync(self.folder)
        for step in self.steps()[: -self.keep_last]:
            _remove(self.path(step))
        return path

    def save_best(self, root: nn.Module, state: State) -> None:
        """Replace `best/` with these weights.

        Raises:
            MachineError: the disk is full or not writable; the `best` before is whole.
        """
        old = _hidden(self.best, "old")
        with self._draft(self.best) as draft:
            _write(draft, root, state, self.kept)
            if self.best.exists():
                shutil.rmtree(old, ignore_errors=True)
                self.best.rename(old)
            draft.rename(self.best)
            sync(self.run)
            shutil.rmtree(old, ignore_errors=True)

    @contextmanager
    def _draft(self, path: Path) -> Iterator[Path]:
        """A new folder to be renamed to `path`; whatever goes wrong, it does not stay."""
        draft = _hidden(path, "tmp")
        try:
            with explained(path):
                shutil.rmtree(draft, ignore_errors=True)
                draft.mkdir(parents=True)
                yield draft
        except BaseException as error:
            self.clean()
            if isinstance(error, MachineError) and self.steps():
                raise MachineError(f"{error}; earlier checkpoints are whole") from error
            raise


def _write(
    draft: Path, root: nn.Module, state: State, kept: Kept | None, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Fill a folder with weights, moments (with an optimiser) and the state; all of it is on the disk afterwards."""
    weights = root.state_dict()
    if kept is not None:
        weights = {name: tensor for name, tensor in weights.items() if name not in kept.names}
        state = {**state, KEPT: asdict(kept)}
    save_weights(draft / MODEL, weights)
    if optimizer is not None:
        _save_moments(draft / TRAINER, optimizer_state(root, optimizer))
    sums = {path.name: sha256_of(path) for path in sorted(draft.iterdir())}
    write_text(draft / STATE, json.dumps({**state, CHECKSUMS: {**sums, STATE: _checksum(state)}}, indent=2))
    sync(draft)


def _save_moments(path: Path, moments: dict[str, dict[str, Tensor]]) -> None:
    with path.open("wb") as file:
        try:
            torch.save(moments, file)
        except RuntimeError as error:  # torch covers the error of its file with one of its own
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise
    sync(path)


def _checksum(state: State) -> str:
    """Of the state as it is read back: written as JSON, keys sorted."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def read_state(folder: Path) -> State:
    """The state of a checkpoint, compared with its checksum; the checksums of the other files are in `sha256`.

    Raises:
        DamagedError: it is missing, damaged, or of another step than the folder's name says.
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
    """The state of a checkpoint (or of `best`) whose files all have the checksums they were saved with.

    Raises:
        DamagedError: a file is missing or was changed.
        WorkbenchError: a folder, a pipe or a link to nothing has the name of one.
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
        DamagedError: they are not what was saved; says what to do.
    """
    try:
        verify_checkpoint(folder)
    except DamagedError as error:
        raise DamagedError(f"{error}. Restore it from a copy, or move it away to use another checkpoint") from error
    return _weights(folder)


def kept_of(folder: Path) -> Kept | None:
    """Where a checkpoint says that weights lie which it does not hold."""
    stated = read_state(folder).get(KEPT)
    return None if stated is None else Kept(**stated)


def files_of(folder: Path) -> list[Path]:
    """The files that hold the weights of a checkpoint: its own, and that of those which the run does not change."""
    kept = kept_of(folder)
    return [folder / MODEL, *([] if kept is None else [_run_of(folder) / kept.file])]


def _weights(folder: Path) -> dict[str, Tensor]:
    kept = kept_of(folder)
    return ({} if kept is None else kept.read(_run_of(folder))) | read_weights(folder / MODEL)


def _run_of(folder: Path) -> Path:
    return folder.parent if NAME.fullmatch(folder.name) is None else folder.parent.parent


def restore(folder: Path, root: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Load weights and optimiser from a checkpoint that was verified; returns its state.

    Raises:
        WorkbenchError: a damaged checkpoint, or one of another model.
    """
    state = read_state(folder)
    load_weights(root, _weights(folder), str(folder))
    load_optimizer_state(root, optimizer, _read_moments(folder / TRAINER))
    return {key: value for key, value in state.items() if key != CHECKSUMS}


def read_memory(folder: Path) -> dict[str, Tensor]:
    """What a checkpoint that was verified remembers of the texts that are read on."""
    return read_weights(folder / MEMORY) if (folder / MEMORY).exists() else {}


def _read_moments(path: Path) -> dict[str, dict[str, Tensor]]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise DamagedError(f"{path} is damaged ({_short(error)})") from error


def _same_run(one: Path, other: Path) -> bool:
    """Whether two checkpoints were written by the same run (a damaged one is left to whoever reads it)."""
    try:
        return bool(read_state(one)["run"] == read_state(other)["run"])
    except (DamagedError, KeyError):
        return True


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _free(path: Path) -> Path:
    """This path, or the first of path-2, path-3, ... where nothing stands."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _delete(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _hidden(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}")


def _remove(path: Path) -> None:
    """Take a checkpoint away at once: rename first, so that no half-removed one keeps its name."""
    gone = _hidden(path, "tmp")
    shutil.rmtree(gone, ignore_errors=True)
    path.rename(gone)
    shutil.rmtree(gone)

"""The checkpoints of a run: the last few and the best, each exchanged for another at once.

    checkpoints/step-N/   after N finished updates (`workbench.runs.checkpoint` says what lies in it)
    best/                 the weights and state of the step with the best held-out metric

Only the main rank writes.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files.drafts import DRAFT_SUFFIX, check_folder, explained, sync
from workbench.runs.checkpoint import NAME, DamagedError, State, read_state, verify_checkpoint, write_checkpoint
from workbench.runs.data_record import run_id
from workbench.runs.frozen_weights import FrozenNames
from workbench.runs.names import BEST, CHECKPOINTS, DATA

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Whole:
    """What a run resumes from.

    Attributes:
        step: of the last checkpoint that is whole; 0 where there is none.
        path: its folder.
        damaged: the folders of later ones, with what is wrong with each.
    """

    step: int = 0
    path: Path | None = None
    damaged: dict[Path, str] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of a run folder.

    Args:
        kept: the weights that the run doesn't change and its checkpoints don't hold.
    """

    def __init__(self, run: Path, keep_last: int = 2, kept: FrozenNames | None = None) -> None:
        if keep_last < 1:
            raise WorkbenchError(f"train.keep_last = {keep_last}; allowed: 1 or more")
        self.run = run
        self.folder = run / CHECKPOINTS
        self.best = run / BEST
        self.keep_last = keep_last
        self.kept = kept or {}

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

    def whole(self) -> Whole:
        """The last checkpoint that is what was saved, and the later ones that are not. Nothing is touched.

        Raises:
            WorkbenchError: there are checkpoints, but none is whole, or it is of another run.
        """
        damaged: dict[Path, str] = {}
        for step in reversed(self.steps()):
            try:
                self._check_own(self.path(step), verify_checkpoint(self.path(step)))
            except DamagedError as error:
                damaged[self.path(step)] = str(error)
                continue
            return Whole(step, self.path(step), damaged)
        if damaged:
            listed = "\n".join(f"  {reason}" for reason in damaged.values())
            raise WorkbenchError(
                f"no checkpoint of {self.run} is whole:\n{listed}\nRestore one of them from a copy, or train in "
                "another folder"
            )
        return Whole()

    def put_aside(self, whole: Whole) -> None:
        """Keep the damaged checkpoints behind the one that is whole under other names, with a warning for each."""
        for path, reason in whole.damaged.items():
            aside = _free(path.with_name(f"damaged-{path.name}"))
            path.rename(aside)
            logger.warning("%s; it is kept as %s, continuing from step %d", reason, aside.name, whole.step)

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
            write_checkpoint(draft, root, state, self.kept, optimizer, memory)
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
            write_checkpoint(draft, root, state, self.kept)
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


def _same_run(one: Path, other: Path) -> bool:
    """Whether two checkpoints were written by the same run (a damaged one is left to whoever reads it)."""
    try:
        return bool(read_state(one)["run"] == read_state(other)["run"])
    except (DamagedError, KeyError):
        return True


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

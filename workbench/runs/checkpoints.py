"""The checkpoints of a run: the last few and the best. Each is replaced atomically.

    checkpoints/step-N/   after N finished updates (`workbench.runs.checkpoint` lists the files)
    best/                 the weights and state of the step with the best held-out metric

The main rank writes, and of a sharded model every rank what it has. The main rank completes a checkpoint, by one
renaming, when all files of all ranks are on the disk.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files.drafts import DRAFT_SUFFIX, check_folder, explained, sync
from workbench.core.processes.distributed import World
from workbench.runs.checkpoint import (
    NAME,
    Content,
    DamagedError,
    State,
    consolidate,
    content_of,
    read_state,
    verify_checkpoint,
    write_state,
)
from workbench.runs.data_record import run_id
from workbench.runs.frozen_weights import FrozenNames
from workbench.runs.names import BEST, CHECKPOINTS, DATA
from workbench.runs.saving import Saving

logger = logging.getLogger(__name__)
ALONE = World()


@dataclass(frozen=True)
class Whole:
    """The checkpoint from which a run resumes.

    Attributes:
        step: the step of the last valid checkpoint; 0 if there is none.
        path: its folder.
        damaged: the folders of later checkpoints, with the damage of each.
    """

    step: int = 0
    path: Path | None = None
    damaged: dict[Path, str] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of a run folder.

    Args:
        kept: the frozen weights, which the checkpoints do not contain.
        world: the ranks that save; those that only read need none.

    Attributes:
        saving: the checkpoint that is being written.
    """

    def __init__(self, run: Path, keep_last: int = 2, kept: FrozenNames | None = None, world: World = ALONE) -> None:
        if keep_last < 1:
            raise WorkbenchError(f"train.keep_last = {keep_last}; allowed: 1 or more")
        self.run = run
        self.folder = run / CHECKPOINTS
        self.best = run / BEST
        self.keep_last = keep_last
        self.kept = kept or {}
        self.world = world
        self.saving: Saving | None = None

    def steps(self) -> list[int]:
        """The steps that have a complete checkpoint, ascending.

        Raises:
            WorkbenchError: something that is not a folder has the name of a checkpoint.
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
        """The last checkpoint, unchecked."""
        steps = self.steps()
        return self.path(steps[-1]) if steps else None

    def whole(self) -> Whole:
        """The last valid checkpoint, and the damaged ones after it. Nothing is changed.

        Every rank calls it, compares a share of the files, and gets the same answer.

        Raises:
            WorkbenchError: there are checkpoints, but none is valid, or it belongs to another run.
        """
        damaged: dict[Path, str] = {}
        for step in reversed(self.world.from_main(self.steps)):
            reason = self._damage(self.path(step))
            if reason:
                damaged[self.path(step)] = reason
                continue
            return Whole(step, self.path(step), damaged)
        if damaged:
            listed = "\n".join(f"  {reason}" for reason in damaged.values())
            raise WorkbenchError(
                f"no checkpoint of {self.run} is whole:\n{listed}\nRestore one of them from a copy, or train in "
                "another folder"
            )
        return Whole()

    def _damage(self, path: Path) -> str:
        """The damage of a checkpoint that any rank found; empty if it is valid.

        Raises:
            WorkbenchError: it belongs to another run, or something that is not a file has the name of one.
        """
        damage, refusal = "", ""
        try:
            state = verify_checkpoint(path, self.world.rank, self.world.size)
            self._check_own(path, state)
        except DamagedError as error:
            damage = str(error)
        except WorkbenchError as error:
            refusal = str(error)
        ranks = self.world.gather((damage, refusal))
        for _, refused in ranks:
            if refused:
                raise WorkbenchError(refused)
        return next((found for found, _ in ranks if found), "")

    def put_aside(self, whole: Whole) -> None:
        """Rename the damaged checkpoints after the valid one, with a warning for each."""
        for path, reason in whole.damaged.items():
            aside = _free(path.with_name(f"damaged-{path.name}"))
            path.rename(aside)
            logger.warning("%s; it is kept as %s, continuing from step %d", reason, aside.name, whole.step)

    def best_or_last(self) -> Path | None:
        """The checkpoint whose weights are used: `best` if it belongs to this run, else the last one.

        Raises:
            WorkbenchError: the last one belongs to another run.
        """
        last = self.latest()
        if last is not None:
            with suppress(DamagedError):  # reading it reports the damage
                self._check_own(last, read_state(last))
        if self.best.is_dir() and (last is None or _same_run(self.best, last)):
            return self.best
        return last

    def _check_own(self, path: Path, state: State) -> None:
        """Check that a checkpoint was written by the run of this folder.

        Raises:
            WorkbenchError: another run wrote it.
        """
        own = run_id(self.run)
        if own is not None and state.get("run") != own:
            raise WorkbenchError(
                f"{path} is a checkpoint of run {state.get('run')}, but {self.run} is run {own} (so says {DATA}): it "
                "was copied here. Move it away; to train on from its weights, start a new run with model.init_from"
            )

    def clear_best(self) -> None:
        """Remove the files of an attempt without a checkpoint, so that a new start has no old `best`."""
        for folder in (self.best, _hidden(self.best, "old")):
            shutil.rmtree(folder, ignore_errors=True)

    def clean(self) -> None:
        """Remove the remains of an interrupted save, and finish an interrupted replacement of `best`."""
        old = _hidden(self.best, "old")
        if old.is_dir() and not self.best.exists():
            old.rename(self.best)
        for folder in (self.folder, self.run):
            for pattern in (".*.tmp", f".*{DRAFT_SUFFIX}"):
                for rest in folder.glob(pattern):
                    _delete(rest)
        shutil.rmtree(old, ignore_errors=True)

    def start(
        self,
        root: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: State,
        memory: dict[str, Tensor] | None = None,
        *,
        consolidated: bool = False,
        background: bool = False,
    ) -> None:
        """Begin to write `step-N` under a temporary name; `finish` completes it. Every rank calls both, and none before
        it finished another.

        Args:
            memory: the memory of texts; the main rank's counts.
            consolidated: whether the weights of a sharded model become one file.
            background: whether a copy of the content is written while the training continues.
        """
        assert self.saving is None
        content = content_of(root, state, self.kept, optimizer, memory, rank=self.world.rank, copied=background)
        path = self.path(state["step"])
        self.saving = self._begun(path, content, consolidated=consolidated, background=background)

    def finish(self) -> Path:
        """Wait until every rank has written its files, rename the checkpoint and remove the oldest beyond `keep_last`.
        Returns its folder.

        Raises:
            MachineError: the disk is full or not writable; no partial checkpoint stays, earlier checkpoints are valid.
        """
        assert self.saving is not None
        saving, self.saving = self.saving, None
        self._complete(saving, self._replace_step)
        return saving.path

    def abandon(self) -> None:
        """Drop a checkpoint that is being written, as another rank may be lost; on one rank it is completed."""
        if self.saving is not None and self.world.size == 1:
            with suppress(Exception):
                self.finish()
        saving, self.saving = self.saving, None
        if saving is not None:
            with suppress(Exception):
                saving.wait()
            if self.world.is_main:
                shutil.rmtree(saving.draft, ignore_errors=True)

    def save_best(self, root: nn.Module, state: State) -> None:
        """Replace `best/` by these weights. Every rank calls it.

        Raises:
            MachineError: the disk is full or not writable; the previous `best` is valid.
        """
        content = content_of(root, state, self.kept, rank=self.world.rank)
        saving = self._begun(self.best, content, consolidated=True, background=False)
        self._complete(saving, self._replace_best)

    def _begun(self, path: Path, content: Content, *, consolidated: bool, background: bool) -> Saving:
        draft = _hidden(path, "tmp")

        def emptied() -> None:
            with self._cleaned(), explained(path):
                shutil.rmtree(draft, ignore_errors=True)
                draft.mkdir(parents=True)

        self.world.from_main(emptied)
        with self._cleaned():
            where = f"{self.world.name}: " if self.world.size > 1 else ""
            return Saving(path, draft, content, consolidated=consolidated, background=background, where=where)

    def _complete(self, saving: Saving, put: Callable[[Saving], None]) -> None:
        """Give a checkpoint its name, where every rank has written its files."""
        with self._cleaned():
            ranks = self.world.gather_on_main(saving.wait())

        def named() -> None:
            with self._cleaned(), explained(saving.path):
                for written in ranks:
                    if written.failure:
                        raise written.error()
                state, sums = saving.content.state, {n: sha for each in ranks for n, sha in each.sums.items()}
                if saving.consolidated:
                    sums = consolidate(saving.draft, state, sums)
                write_state(saving.draft, state, sums)
                put(saving)

        self.world.from_main(named)

    def _replace_step(self, saving: Saving) -> None:
        if saving.path.exists():
            shutil.rmtree(saving.path)
        saving.draft.rename(saving.path)
        sync(self.folder)
        for step in self.steps()[: -self.keep_last]:
            _remove(self.path(step))

    def _replace_best(self, saving: Saving) -> None:
        old = _hidden(self.best, "old")
        if self.best.exists():
            shutil.rmtree(old, ignore_errors=True)
            self.best.rename(old)
        saving.draft.rename(self.best)
        sync(self.run)
        shutil.rmtree(old, ignore_errors=True)

    @contextmanager
    def _cleaned(self) -> Iterator[None]:
        """A block after whose failure the main rank removes what is half written."""
        try:
            yield
        except BaseException as error:
            if self.world.is_main:
                self.clean()
            if isinstance(error, MachineError) and self.steps():
                raise MachineError(f"{error}; earlier checkpoints are whole") from error
            raise


def _same_run(one: Path, other: Path) -> bool:
    """Whether two checkpoints were written by the same run. A damaged one counts as such; reading it reports the
    damage."""
    try:
        return bool(read_state(one)["run"] == read_state(other)["run"])
    except (DamagedError, KeyError):
        return True


def _free(path: Path) -> Path:
    """This path, or the first unused one of path-2, path-3, ..."""
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
    """Remove a checkpoint atomically: it is renamed first, so that no partial one keeps its name."""
    hidden = _hidden(path, "tmp")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)
    shutil.rmtree(hidden)

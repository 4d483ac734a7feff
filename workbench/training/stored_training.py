"""Training in a run on an object store: a local folder that a snapshot follows (`workbench.runs.stored_run`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from workbench.core.errors import WorkbenchError
from workbench.core.files.store_lock import StoreLock, store_locked
from workbench.core.files.stores import Store, scratch_folder
from workbench.core.files.urls import local_path, url_of
from workbench.core.processes.distributed import World
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import Record
from workbench.runs.stored_run import StoredRun, refuse_copy
from workbench.training.callbacks import Callback

logger = logging.getLogger(__name__)


class RunUpload(Callback):
    """Writes a snapshot of the run at each checkpoint. It stops the run when another process has taken it over."""

    def __init__(self, run: StoredRun, lock: StoreLock) -> None:
        self.run, self.lock = run, lock

    def on_step(self, step: int, metrics: Record) -> None:
        self.lock.check_beats()

    def on_checkpoint(self, step: int, folder: Path) -> None:
        self.run.push()
        logger.info("step %d is in %s", step, self.run.store)


@contextmanager
def trained_in(place: str | Path, world: World) -> Iterator[tuple[Path, list[Callback]]]:
    """A block in which a run is trained: its local folder, and the callbacks that keep the store up to date.

    The main rank locks the store's folder, fetches the last snapshot and clears what a killed process left. The local
    folder of a URL is `scratch_folder`. It is the same on all ranks, so the ranks of several machines need one in a
    shared folder. At the end the metrics and the log are written once more.

    Raises:
        WorkbenchError: the store refuses the access, another process trains the run, or the snapshot is damaged.
        MachineError: the store does not answer.
    """
    url = url_of(place)
    if url is None:
        refuse_copy(path := local_path(place))
        yield path, []
        return
    folder = scratch_folder(url)
    with ExitStack() as stack:
        uploads: list[Callback] = []

        def fetched() -> None:
            store = Store.writable(url)
            lock = stack.enter_context(store_locked(store))
            run = StoredRun(store, folder, lock)
            run.fetch()
            run.clear()
            uploads.append(RunUpload(run, lock))
            stack.push(lambda kind, error, trace: _write_end(run, failed=error is not None))

        world.from_main(fetched)
        yield folder, uploads


def _write_end(run: StoredRun, *, failed: bool) -> None:
    """The last snapshot; after a failure only if it can be written, and never one of a run without a checkpoint."""
    if Checkpoints(run.folder).latest() is None:
        return
    if not failed:
        run.push()
        return
    with suppress(WorkbenchError):
        run.push()

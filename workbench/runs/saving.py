"""A checkpoint that is being written: by this thread, or in the background while the training continues.

A background thread makes no collective: the ranks agree at a step's end that all threads have finished. So nothing of
it can meet the collectives of a step.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files.drafts import explained
from workbench.runs.checkpoint import Content, Sums


@dataclass(frozen=True)
class Written:
    """What a rank says of its files: their checksums, or why there are none."""

    sums: Sums
    failure: str = ""
    of_the_machine: bool = False

    def error(self) -> WorkbenchError:
        return MachineError(self.failure) if self.of_the_machine else WorkbenchError(self.failure)


class Saving:
    """The writing of this rank's files of a checkpoint.

    Args:
        path: of the finished checkpoint, for messages.
        draft: the folder of the files until the checkpoint is complete.
        consolidated: whether the weights will be one file.
        background: whether `content` is written while the training continues.
        where: the rank and its host, of several ranks: the beginning of a message.
    """

    def __init__(
        self, path: Path, draft: Path, content: Content, *, consolidated: bool, background: bool, where: str = ""
    ) -> None:
        self.where = where
        self.path, self.draft, self.content, self.consolidated = path, draft, content, consolidated
        self._written: Written | None = None
        self._bug: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="saving", daemon=True) if background else None
        if self._thread is not None:
            self._thread.start()
        else:
            self._write()

    def _write(self) -> None:
        try:
            with explained(self.path):
                self._written = Written(self.content.write(self.draft))
        except WorkbenchError as error:
            failure = f"{self.where}{error}"
            self._written = Written({}, failure, isinstance(error, MachineError))
        except BaseException as error:
            if self._thread is None:
                raise
            self._bug = error  # raised where the main thread waits

    @property
    def under_way(self) -> bool:
        """Whether this rank's files are still being written."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> Written:
        """Wait for this rank's files."""
        if self._thread is not None:
            self._thread.join()
        if self._bug is not None:
            raise self._bug
        assert self._written is not None
        return self._written

"""`status.json` of a run: how its last training ended, for a scheduler's hook.

    {"code": 1, "rank": 3, "host": "node2", "step": 5120, "reason": "rank 3 (node2): ... the disk is full ..."}

`code` is the exit code of the command; `rank` and `host` are of the process that met the reason first. The file is
removed when training begins, so a run without it is under way, or all its processes were killed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import BUG, WorkbenchError, message, system_error
from workbench.core.files.drafts import write_text
from workbench.core.files.text_files import parse_json
from workbench.core.local_copies import with_urls
from workbench.core.processes.distributed import World
from workbench.core.processes.membership import LostRanksError
from workbench.runs.names import STATUS

_LOST = "lost_others"


@dataclass
class Ending:
    """The end of a training on this rank, as far as it is known: its last step, and the exit code without an error."""

    step: int = 0
    code: int = 0
    reason: str = "finished"


@contextmanager
def noted_end(run: Path, world: World) -> Iterator[Ending]:
    """A block that trains, after which `status.json` says how it ended. Errors pass.

    Of several ranks with an error the first one writes the file. One that has lost others is no cause: another rank
    with an error of its own replaces its status.
    """
    ending = Ending()
    try:
        yield ending
    except BaseException as error:
        ending.code, ending.reason = _explained(error)
        _write(run, world, ending, lost=isinstance(error, LostRanksError))
        raise
    if world.is_main:
        _write(run, world, ending)


def _explained(error: BaseException) -> tuple[int, str]:
    """The exit code and the message of an error (`workbench.cli.app.main`)."""
    if isinstance(error, OSError):
        error = system_error(error)
    if isinstance(error, WorkbenchError):
        return error.exit_code, message(error)
    if isinstance(error, KeyboardInterrupt):
        return 130, "stopped by SIGINT"
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1, "stopped"
    return BUG, with_urls(f"{type(error).__name__}: {error}")


def _write(run: Path, world: World, ending: Ending, *, lost: bool = False) -> None:
    place = run / STATUS
    with suppress(WorkbenchError, OSError, ValueError):  # a full disk may have been the reason
        if place.is_file() and (lost or not parse_json(place.read_bytes()).get(_LOST)):
            return
        status = {"code": ending.code, "rank": world.rank, "host": socket.gethostname(), "step": ending.step}
        status |= {"reason": ending.reason, **({_LOST: True} if lost else {})}
        write_text(place, json.dumps(status, ensure_ascii=False, indent=1) + "\n")

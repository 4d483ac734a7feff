"""Expected errors: one message with what was found, what is allowed and what to do."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shlex
from collections.abc import Iterable

from workbench.core.local_copies import with_urls

SHOWN = 120  # characters of a value in a message
LONGEST_PATH = 4096  # of Linux; a longer one names nothing
RAISED_IN = "raised in "
"""The beginning of a note on an error that names the component which raised it (`workbench.components.calls`)."""


BUG = 70
"""The exit code of a bug (EX_SOFTWARE of sysexits.h): no scheduler should start it again."""


def quoted(path: str | os.PathLike[str]) -> str:
    """A path as a word of a shell command."""
    return shlex.quote(os.fspath(path))


def choices(option: str, names: Iterable[str]) -> str:
    """The ways to choose one of several by an option, as typed: `--task a or --task b`."""
    return " or ".join(f"{option} {shlex.quote(name)}" for name in names)


class WorkbenchError(Exception):
    """A wrong input, as opposed to a bug. The command line prints only its message and exits with `exit_code`.

    A message names the URL of a local copy (`workbench.core.local_copies`).
    """

    exit_code = 2

    def __init__(self, *stated: object) -> None:
        super().__init__(*(with_urls(each) if isinstance(each, str) else each for each in stated))


class MachineError(WorkbenchError):
    """A failure of the machine on a valid input: a full or failing disk, no memory, a process that was killed.

    The same command may succeed later.
    """

    exit_code = 1


class BadValueError(WorkbenchError):
    """A value of a sample that is unusable although it could be read: an image that cannot be decoded.

    Args:
        where: the sample.
        detail: what is wrong and what to do.
        value: the value itself; every sample that holds this object is bad, also one that borrowed it.
        reason: a short text, equal for equal causes, so that it can be counted.
    """

    def __init__(self, where: str, detail: str, value: object, reason: str) -> None:
        super().__init__(where, detail, value, reason)
        self.where, self.detail, self.value, self.reason = where, detail, value, reason

    def __str__(self) -> str:
        return f"{self.where}: {self.detail}"


ADVICE = {
    errno.ENOSPC: "the disk is full ({}). Free some space and run the same command again: finished work is kept",
    errno.EDQUOT: "your share of the disk is used up ({}). Free some space and run the same command again",
    errno.EACCES: "no permission ({}). Change the permissions, or choose another place",
    errno.EPERM: "no permission ({}). Change the permissions, or choose another place",
    errno.EROFS: "cannot write here ({}); choose another place",
    errno.ENOENT: "there is no such file or folder ({}); check the path",
    errno.ENOTDIR: "a file is where a folder is needed ({}); choose another place",
    errno.EISDIR: "a folder is where a file is needed ({}); choose another place",
    errno.EEXIST: "the path exists already ({}); choose another place",
    errno.ENAMETOOLONG: "the name is too long ({}); check the path",
    errno.ELOOP: "a link leads to itself ({}); check the path",
    errno.EMFILE: "too many open files ({}); raise the limit with ulimit -n",
    errno.EAGAIN: "no more processes may be started ({}); use fewer, or raise the limit with ulimit -u",
    errno.ENOMEM: "not enough memory ({}); use fewer processes, or a machine with more",
}


CHOICES = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}
"""Errors that another path or other permissions would avoid: a wrong input. All others are failures of the machine."""


def system_error(error: OSError, path: object = None) -> WorkbenchError:
    """The message for an error of the operating system: the file, the reason, what to do.

    It is a `MachineError`, unless the path or its permissions are wrong (`CHOICES`).

    Args:
        path: the file, if the error itself names none (a full disk while writing).
    """
    named = [os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, str | bytes | os.PathLike)]
    place = str(path) if path is not None else " -> ".join(named)
    place = place if len(place) <= LONGEST_PATH else f"{place[:SHOWN]}..."
    reason = error.strerror or str(error) or type(error).__name__
    advice = ADVICE.get(_number(error), "the operating system says: {}. Fix that and run the same command again")
    kind = WorkbenchError if error.errno in CHOICES else MachineError
    notes = getattr(error, "__notes__", ())
    components = [note.removeprefix(RAISED_IN) for note in notes if note.startswith(RAISED_IN)]
    return kind(": ".join([*components, *filter(None, [place]), advice.format(reason)]))


def _number(error: OSError) -> int:
    """The error's number. numpy sets none when the disk is full while it writes an array."""
    return error.errno or (errno.ENOSPC if re.fullmatch(r"\d+ requested and \d+ written", str(error)) else 0)


def memory_error(error: MemoryError | ImportError) -> MachineError | None:
    """The message for an error that means that no memory was left; None if the error means something else.

    A library that does not fit into memory raises an ImportError with the message of the loader.
    """
    detail = str(error) or type(error).__name__
    if isinstance(error, ImportError) and not re.search("failed to map segment|cannot allocate memory", detail, re.I):
        return None
    return MachineError(f"not enough memory ({detail}); use a machine with more, or raise the limit (ulimit -v)")


def message(error: WorkbenchError) -> str:
    """The message of an error, followed by its notes (`workbench.components.calls`)."""
    return str(with_urls("\n".join([str(error), *getattr(error, "__notes__", ())])))


def shown(value: object) -> str:
    """A value for a message: its `repr`, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


LISTED = 12
"""The number of valid names up to which a message lists all of them; otherwise it lists the nearest."""
NEAREST = 5


def nearest(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names that are most similar to `name`, best first (at most three)."""
    return difflib.get_close_matches(name, list(valid), n=3, cutoff=0.5)


def unknown(
    what: str, name: str, valid: Iterable[str], where: str = "", unlisted: Iterable[str] = (), advice: str = ""
) -> WorkbenchError:
    """The error for a name that does not exist. It lists the nearest valid names, then all except the `unlisted`, or
    up to five near ones of many. `advice` follows."""
    choices = sorted(valid)
    close = nearest(name, [*choices, *unlisted])
    guess = f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    place = f" in {where}" if where else ""
    listed = f"Valid: {', '.join(choices) if choices else 'none'}."
    if len(choices) > LISTED:
        near = difflib.get_close_matches(name, choices, n=NEAREST, cutoff=0.5)  # names less alike would mislead
        some = f"; the nearest: {', '.join(near)}" if near else f", among them {', '.join(choices[:NEAREST])}"
        listed = f"Valid are {len(choices):,}{some}."
    return WorkbenchError(f"unknown {what} {name!r}{place}.{guess} {listed}{' ' * bool(advice)}{advice}")

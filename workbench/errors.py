"""Errors that are for people: one message that says what was found, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WorkbenchError(Exception):
    """A wrong input, as opposed to a bug. The command line prints its message alone and exits with code 2."""


class BadValueError(WorkbenchError):
    """A value of a sample that turns out to be unusable after it was read: an image that cannot be decoded.

    Args:
        where: the sample.
        detail: what is wrong and what to do.
        value: the value itself: every sample that holds this object is bad, also one that borrowed it.
        reason: short, and the same for equal causes, so that it can be counted.
    """

    def __init__(self, where: str, detail: str, value: object, reason: str) -> None:
        super().__init__(where, detail, value, reason)
        self.where, self.detail, self.value, self.reason = where, detail, value, reason

    def __str__(self) -> str:
        return f"{self.where}: {self.detail}"


def nearest(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names that look most like `name`, best first (at most three)."""
    return difflib.get_close_matches(name, list(valid), n=3, cutoff=0.5)


def unknown(what: str, name: str, valid: Iterable[str], where: str = "") -> WorkbenchError:
    """The error for a name that does not exist: names the nearest valid ones, then all of them."""
    choices = sorted(valid)
    close = nearest(name, choices)
    guess = f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    place = f" in {where}" if where else ""
    listed = ", ".join(choices) if choices else "none"
    return WorkbenchError(f"unknown {what} {name!r}{place}.{guess} Valid: {listed}.")

"""What a stage does with a sample that it cannot use: it stops the run, or drops and counts it, as the user says."""

from __future__ import annotations

from typing import Literal

from pipelines.readers.reader import Drop
from workbench.core.errors import BadValueError, WorkbenchError

OnError = Literal["stop", "skip"]


def unusable(error: BadValueError, on_error: OnError, what: str) -> Drop:
    """The drop, by the error's reason.

    Args:
        what: what is left out, in the plural.

    Raises:
        WorkbenchError: nothing is to be left out.
    """
    if on_error == "skip":
        return Drop(error.reason)
    raise WorkbenchError(f"{error}; or leave such {what} out with --on-error skip") from error

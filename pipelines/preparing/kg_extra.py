"""The optional packages of kg, asked for in one voice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from workbench.errors import WorkbenchError


@contextmanager
def needs_kg() -> Iterator[None]:
    """Around an import of kg: a missing package becomes a message that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"this needs the package {error.name!r}: pip install 'pretraining-workbench[kg]'"
        ) from error

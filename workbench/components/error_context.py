"""Error contexts: an error that leaves a component names the component and its place in the recipe.

`workbench.components.building.build` records the name of each component. When a `WorkbenchError` leaves a named
component, its message begins with this name. Any other error gets a note. Python prints notes as the last lines of a
traceback; the command line prints them after its message:

    RuntimeError: boom
    raised in tasks.text.objectives[1]: objective 'swapped:Swapped'
"""

from __future__ import annotations

from types import TracebackType

from workbench.components.build_context import named
from workbench.core.errors import RAISED_IN, MachineError, WorkbenchError
from workbench.core.processes.signals import Ended, Interrupted

PLACES = ("model.", "tasks.")
"""Prefixes of places in a recipe."""


class ErrorContext:
    """A block in which a component runs: an error that leaves the block names the component.

    An error that already has such a note keeps it, as the inner component is more precise; so does a message that names
    a place in the recipe. An error of another class keeps its class, since its handler may need its attributes.
    `sys.exit` and `StopIteration` are replaced by errors: they would silently end the command or a surrounding loop.
    Ctrl-C (`Interrupted`) passes unchanged.

    Args:
        component: a component, or a name.
    """

    __slots__ = ("component",)

    def __init__(self, component: object) -> None:
        self.component = component

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        name = self.component if isinstance(self.component, str) else named(self.component)
        if isinstance(error, SystemExit) and not isinstance(error, Ended):
            raise WorkbenchError(
                f"{name}: it called sys.exit({error.code!r}), which would end the whole command; raise "
                "workbench.core.errors.WorkbenchError instead, with what is wrong and what to do"
            ) from error
        if isinstance(error, StopIteration):
            stop = RuntimeError("StopIteration outside of an iterator's __next__")
            stop.add_note(RAISED_IN + name)
            raise stop from error
        if isinstance(error, Interrupted) or not isinstance(error, Exception | KeyboardInterrupt):
            return
        if any(note.startswith(RAISED_IN) for note in getattr(error, "__notes__", ())):
            return
        if not isinstance(error, WorkbenchError):
            error.add_note(RAISED_IN + name)
        elif type(error) in (WorkbenchError, MachineError) and not _names_place(str(error), name):
            raise type(error)(f"{name}: {error}") from error


def _names_place(message: str, name: str) -> bool:
    """Whether a message names the component's place, or begins with the place of an inner component."""
    return name.partition(": ")[0] in message or message.startswith(PLACES)

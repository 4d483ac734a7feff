"""Which component, at which place of the recipe, an error came from.

`workbench.components.building.build` records the name of what it builds. An error for people that leaves a named
component begins with this name; any other gets a note. Python prints notes as the last lines of a traceback, and the
command line after its message:

    RuntimeError: boom
    raised in tasks.text.objectives[1]: objective 'swapped:Swapped'
"""

from __future__ import annotations

from types import TracebackType

from workbench.components.build_context import named
from workbench.core.errors import RAISED_IN, MachineError, WorkbenchError
from workbench.core.processes.signals import Ended, Interrupted

PLACES = ("model.", "tasks.")
"""How places in a recipe begin."""


class ErrorContext:
    """A block in which a component is at work: an error that leaves it gets the component's name.

    An error that has such a note already keeps it, as the component inside knows better; so does a message that names a
    place in the recipe. An error of a class of its own stays what it is, as whoever catches it wants what it carries.
    What would silently end more than the component is replaced: `sys.exit`, and a `StopIteration`, which would end the
    loop around the block. Ctrl-C (`Interrupted`) is nobody's fault.

    Args:
        part: a component, or a name.
    """

    __slots__ = ("part",)

    def __init__(self, part: object) -> None:
        self.part = part

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        name = self.part if isinstance(self.part, str) else named(self.part)
        if isinstance(error, SystemExit) and not isinstance(error, Ended):
            raise WorkbenchError(
                f"{name}: it called sys.exit({error.code!r}), which would end the whole command; allowed: to raise "
                "workbench.core.errors.WorkbenchError with what is wrong and what to do"
            ) from error
        if isinstance(error, StopIteration):
            stop = RuntimeError("StopIteration, which is no error outside of an iterator's __next__")
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
    """Whether a message names the component's place, or begins with that of one inside: a layer that a head ran."""
    return name.partition(": ")[0] in message or message.startswith(PLACES)

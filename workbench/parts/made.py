"""What is known of a part from its making: what was opened meanwhile, and which parts it has built itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.files.identities import kinds_opened

if TYPE_CHECKING:
    from torch import nn

MADE = "made_by_build"


@dataclass
class Made:
    """Of one part: its kind, the kinds of what was opened while it was made (`workbench.files.identities`: graph,
    vectors, ...), and the parts inside it (a policy, an image)."""

    kind: str
    opened: set[str] = field(default_factory=set)
    inside: list[Any] = field(default_factory=list)


_making: ContextVar[Made | None] = ContextVar("making", default=None)


@contextmanager
def making(made: Made) -> Iterator[None]:
    """A block in which a part is made."""
    outer = _making.set(made)
    try:
        with kinds_opened() as kinds:
            yield
    finally:
        _making.reset(outer)
    made.opened |= kinds


def keep(part: Any, made: Made) -> Any:
    """The part, with what is known of its making; whatever part is being made has it inside."""
    with contextlib.suppress(AttributeError, TypeError):  # a class that forbids attributes: nothing is known of it
        object.__setattr__(part, MADE, made)
    outer = _making.get()
    if outer is not None:
        outer.inside.append(part)
    return part


def made_of(part: Any) -> Made | None:
    """What is known of a part's making; None of what is no part."""
    made: Made | None = getattr(part, MADE, None)
    return made


def parts_within(module: nn.Module) -> list[nn.Module]:
    """The parts among the modules of a network or a head."""
    return [each for each in module.modules() if made_of(each) is not None]

"""What a part may ask for by the name of an argument, without the recipe having to say it.

Whoever builds a part offers what it has; parts that a part builds in its `__init__` (a policy, an image) are offered
the same. An argument of such a name that the recipe states is the recipe's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

ALL = ("builder", "embedding", "image", "layer", "noise", "objective", "policy", "step")


class Given(NamedTuple):
    """Something that is offered: what it is, and to which kinds of parts."""

    meaning: str
    kinds: tuple[str, ...] = ALL


GIVEN = {
    "tokenizer": Given("the run's tokenizer, `workbench.text.tokenizer.Tokenizer`"),
    "vocab_size": Given("the tokenizer's size"),
    "max_length": Given("tokens of the longest sequence of the task's builder", ("objective", "policy", "step")),
    "sizes": Given("hidden size by stream, `dict[str, int]`", ("layer",)),
    "num_heads": Given("heads of the attention that a relation adds to", ("relation",)),
    "head_size": Given("size of each of these heads", ("relation",)),
    "seed": Given("of the recipe"),
    "control": Given("what the recipe takes away (`control`), or None"),
}
_offered: ContextVar[Mapping[str, Any]] = ContextVar("offered", default=MappingProxyType({}))


def offered(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a part is offered: what its builder gives, and what that was offered itself."""
    return {**_offered.get(), **given}


@contextmanager
def offering(given: Mapping[str, Any]) -> Iterator[None]:
    """Within, parts that are built are offered these things too."""
    before = _offered.set(given)
    try:
        yield
    finally:
        _offered.reset(before)

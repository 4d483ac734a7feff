"""The context in which a component is built, and the records of the components that were built.

`workbench.components.building.build` enters a `BuildContext` for each component. A component that builds others in its
`__init__` (an objective its masking strategy) is in their context: their places lie below its place, and they are
offered the same arguments. A component receives arguments from `BuildContext.given`, and `BUILD_ARGUMENTS` lists them.

A function that opens a corpus, a graph, vectors or a tokenizer calls `note` with its identity: a checksum of the
content, which does not depend on the path. `noted` collects the identities of everything that is opened in its block.
So a run records its data and refuses to resume with other data. A user's component is included when it uses the
existing functions, or when it calls `note` itself.

    with noted() as opened:
        store = GraphStore.open("corpora/codex/graph")
    assert opened == {"graph": {"corpora/codex/graph": store.identity}}

`build_record_of` returns the `BuildRecord` of a component. The records are kept here and not on the components, by
identity, for as long as the components live. A copy of a component has none: `copied` and `known_as` pass them on.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from workbench.core.local_copies import with_urls

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")
M = TypeVar("M", bound="nn.Module")
Identities = dict[str, dict[str, str]]
"""Identity by kind (corpus, graph, ...) and place."""
ALL_KINDS = ("builder", "embedding", "image_processor", "layer", "noise", "objective", "masking", "transform")


class BuildArgument(NamedTuple):
    """An argument that is offered to components: its meaning, and the kinds of components that may take it."""

    meaning: str
    kinds: tuple[str, ...] = ALL_KINDS


BUILD_ARGUMENTS = {
    "tokenizer": BuildArgument("the run's tokenizer, `workbench.text.tokenizer.Tokenizer`"),
    "vocab_size": BuildArgument("the tokenizer's size"),
    "max_length": BuildArgument(
        "tokens of the longest sequence of the task's builder", ("objective", "masking", "transform")
    ),
    "sizes": BuildArgument("hidden size by stream, `dict[str, int]`", ("layer",)),
    "hidden_size": BuildArgument("hidden size of the stream that is pooled", ("pooler",)),
    "num_heads": BuildArgument("heads of the attention whose scores are biased", ("score_bias",)),
    "head_size": BuildArgument("size of each of these heads", ("score_bias",)),
    "seed": BuildArgument("the recipe's seed"),
    "control": BuildArgument("the recipe's control, or None"),
}
"""The arguments that a component may take from its context by name. A value in the recipe has precedence."""


@dataclass(frozen=True)
class BuildRecord:
    """The record of how a component was built.

    Attributes:
        name: its place in the recipe, its kind and its name there: `model.layers[0]: layer 'self'`.
        kind: the kind; "" for an object that has a place and is not a component (a head).
        opened: the kinds of data that were opened while it was built (graph, vectors, ...).
        inside: the components that it built itself.
    """

    name: str
    kind: str = ""
    opened: frozenset[str] = frozenset()
    inside: tuple[Any, ...] = ()


@dataclass(frozen=True)
class BuildContext:
    """The context in which a component is built.

    Attributes:
        place: the place of the component in the recipe: `model.layers[0]`.
        given: the arguments that it, and the components that it builds, may take by name.
        opened: collects the kinds of data that are opened; None outside of any component.
        inside: collects the components that this one builds.
        identities: collects the identities of opened data for `noted`.
    """

    place: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    opened: set[str] | None = None
    inside: list[Any] | None = None
    identities: Identities | None = None

    def below(self, where: str, given: Mapping[str, Any]) -> BuildContext:
        """The context of a component that is built in this one, at a place below it."""
        place = ".".join(filter(None, (self.place, where)))
        return replace(self.collecting(), place=place, given={**self.given, **given})

    def collecting(self) -> BuildContext:
        """The same context with empty collections, except for the identities."""
        return replace(self, opened=set(), inside=[])

    def built(self, name: str, kind: str = "") -> BuildRecord:
        """The record of a component that was built in this context."""
        return BuildRecord(name, kind, frozenset(self.opened or ()), tuple(self.inside or ()))


_CONTEXT: ContextVar[BuildContext] = ContextVar("build_context", default=BuildContext())  # noqa: B039  (nothing in it)
_records: dict[int, tuple[weakref.ref[Any], BuildRecord]] = {}


def building() -> BuildContext:
    """The context of the component that is being built; an empty context outside of any."""
    return _CONTEXT.get()


@contextmanager
def entered(context: BuildContext) -> Iterator[BuildContext]:
    """A block in which a component is built."""
    token = _CONTEXT.set(context)
    try:
        yield context
    finally:
        _CONTEXT.reset(token)


@contextmanager
def noted() -> Iterator[Identities]:
    """A block that collects the identities of opened data. An inner block collects instead of the outer one."""
    found: Identities = {}
    with entered(replace(building(), identities=found)):
        yield found


def note(kind: str, place: str | Path, identity: str) -> None:
    """Report the identity of data of this kind to the block that collects identities; a copy by its URL."""
    context = building()
    if context.identities is not None:
        context.identities.setdefault(kind, {})[with_urls(str(place))] = identity
    if context.opened is not None:
        context.opened.add(kind)


def record(component: T, built: BuildRecord) -> T:
    """Store the record of a component and return the component. A class without weak references gets no record."""
    key = id(component)
    try:
        _records[key] = weakref.ref(component, lambda _: _records.pop(key, None)), built
    except TypeError:
        _records.pop(key, None)
    return component


def mark(component: T, name: str) -> T:
    """Give a component, or another object of a recipe, a name for messages."""
    return record(component, replace(build_record_of(component) or BuildRecord(name), name=name))


def build_record_of(component: object) -> BuildRecord | None:
    """The record of a component; None if it was not built from a recipe."""
    found = _records.get(id(component))
    return None if found is None or found[0]() is not component else found[1]


def named(component: object) -> str:
    """The name of a component for messages: from its record, or its attribute `shown_as`, or its class."""
    built = build_record_of(component)
    return str(getattr(component, "shown_as", type(component).__name__)) if built is None else built.name


def known_as(component: T, original: object) -> T:
    """A component that was derived from `original`, with the record of `original`."""
    built = build_record_of(original)
    return component if built is None else record(component, built)


def copied(module: M) -> M:
    """A deep copy of a module whose components have the records of the originals."""
    duplicate = copy.deepcopy(module)
    for own, original in zip(duplicate.modules(), module.modules(), strict=True):
        known_as(own, original)
    return duplicate


def component_around(root: nn.Module, module: nn.Module) -> nn.Module:
    """The innermost component of a model that contains a module; the module itself where there is none."""
    around = [each for each in root.modules() if build_record_of(each) and module in set(each.modules())]
    return around[-1] if around else module


def components_within(module: nn.Module) -> list[nn.Module]:
    """The components among the modules of a network or a head."""
    return [each for each in module.modules() if (built := build_record_of(each)) is not None and built.kind]

"""What is known where a component is built, in one value; and what is known of the components that were built.

`workbench.components.building.build` enters a `BuildContext` for each component. A component that builds others in its
`__init__` (an objective its masking strategy) is in their context: they have places below its place, and are offered
what it was offered. What a component receives is `BuildContext.given`, and `BUILD_ARGUMENTS` lists it.

Whatever opens a corpus, a graph, vectors or a tokenizer calls `note` with its identity: a checksum of content, the same
wherever the file lies. `noted` collects the identities of what is opened in its block. So a run records its data and
refuses to resume with other data. A user's component takes part by using the functions that exist, or by calling
`note` itself.

    with noted() as opened:
        store = GraphStore.open("corpora/codex/graph")
    assert opened == {"graph": {"corpora/codex/graph": store.identity}}

`build_record_of` returns the `BuildRecord` of a component. The records are kept here and not on the components, by
identity, for as long as these live. A copy of a component has none: `copied` and `known_as` pass them on.
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

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")
M = TypeVar("M", bound="nn.Module")
Identities = dict[str, dict[str, str]]
"""Identity by kind (corpus, graph, ...) and place."""
ALL_KINDS = ("builder", "embedding", "image_processor", "layer", "noise", "objective", "masking", "transform")


class BuildArgument(NamedTuple):
    """Something that is offered: what it is, and to which kinds of components."""

    meaning: str
    kinds: tuple[str, ...] = ALL_KINDS


BUILD_ARGUMENTS = {
    "tokenizer": BuildArgument("the run's tokenizer, `workbench.text.tokenizer.Tokenizer`"),
    "vocab_size": BuildArgument("the tokenizer's size"),
    "max_length": BuildArgument(
        "tokens of the longest sequence of the task's builder", ("objective", "masking", "transform")
    ),
    "sizes": BuildArgument("hidden size by stream, `dict[str, int]`", ("layer",)),
    "num_heads": BuildArgument("heads of the attention that a relation adds to", ("relation",)),
    "head_size": BuildArgument("size of each of these heads", ("relation",)),
    "seed": BuildArgument("of the recipe"),
    "control": BuildArgument("what the recipe removes (`control`), or None"),
}
"""What a component may ask for by the name of an argument. An argument that the recipe states is the recipe's."""


@dataclass(frozen=True)
class BuildRecord:
    """What is known of a component from its building.

    Attributes:
        name: its place in the recipe, its kind and its name there: `model.layers[0]: layer 'self'`.
        kind: "" of what has a place and is no component: a head.
        opened: the kinds of what was opened meanwhile (graph, vectors, ...).
        inside: the components that it has built itself.
    """

    name: str
    kind: str = ""
    opened: frozenset[str] = frozenset()
    inside: tuple[Any, ...] = ()


@dataclass(frozen=True)
class BuildContext:
    """What is known where a component is built.

    Attributes:
        place: of the component in the recipe: `model.layers[0]`.
        given: what it may ask for by the name of an argument; so may the components that it builds.
        opened: collects the kinds of what is opened; None outside of any component.
        inside: collects the components that this one builds.
        identities: collects what is opened, for whoever records it (`noted`).
    """

    place: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    opened: set[str] | None = None
    inside: list[Any] | None = None
    identities: Identities | None = None

    def below(self, where: str, given: Mapping[str, Any]) -> BuildContext:
        """That of a component which is built here, at a place below this one."""
        place = ".".join(filter(None, (self.place, where)))
        return replace(self.collecting(), place=place, given={**self.given, **given})

    def collecting(self) -> BuildContext:
        """The same with nothing collected yet, but for identities."""
        return replace(self, opened=set(), inside=[])

    def built(self, name: str, kind: str = "") -> BuildRecord:
        """What is known of a component that was built here."""
        return BuildRecord(name, kind, frozenset(self.opened or ()), tuple(self.inside or ()))


_CONTEXT: ContextVar[BuildContext] = ContextVar("build_context", default=BuildContext())  # noqa: B039  (nothing in it)
_records: dict[int, tuple[weakref.ref[Any], BuildRecord]] = {}


def building() -> BuildContext:
    """The context of the component that is being built; an empty one outside of any."""
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
    """Collects what is opened in the block. An inner block keeps what it collects from the outer one."""
    found: Identities = {}
    with entered(replace(building(), identities=found)):
        yield found


def note(kind: str, place: str | Path, identity: str) -> None:
    """Say that something of this kind was opened, to whoever collects it."""
    context = building()
    if context.identities is not None:
        context.identities.setdefault(kind, {})[str(place)] = identity
    if context.opened is not None:
        context.opened.add(kind)


def record(part: T, built: BuildRecord) -> T:
    """Keep what is known of a component. Of one whose class allows no weak references, nothing is known."""
    key = id(part)
    try:
        _records[key] = weakref.ref(part, lambda _: _records.pop(key, None)), built
    except TypeError:
        _records.pop(key, None)
    return part


def mark(part: T, name: str) -> T:
    """Give a name for messages to a component, or to something else that a recipe places."""
    return record(part, replace(build_record_of(part) or BuildRecord(name), name=name))


def build_record_of(part: object) -> BuildRecord | None:
    """What is known of a component's building; None of what was built otherwise."""
    found = _records.get(id(part))
    return None if found is None or found[0]() is not part else found[1]


def named(part: object) -> str:
    """The name of a component for messages: its record's, or what it says itself (`shown_as`), or its class's."""
    built = build_record_of(part)
    return str(getattr(part, "shown_as", type(part).__name__)) if built is None else built.name


def known_as(part: T, original: object) -> T:
    """A component that was built from another one, with what is known of that one."""
    built = build_record_of(original)
    return part if built is None else record(part, built)


def copied(module: M) -> M:
    """A deep copy of a module, of whose components is known what is known of the originals."""
    made = copy.deepcopy(module)
    for own, original in zip(made.modules(), module.modules(), strict=True):
        known_as(own, original)
    return made


def components_within(module: nn.Module) -> list[nn.Module]:
    """The components among the modules of a network or a head."""
    return [each for each in module.modules() if (built := build_record_of(each)) is not None and built.kind]

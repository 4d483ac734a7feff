"""What data a program read: whatever opens a corpus, a graph, vectors or a tokenizer notes its identity here.

An identity is a checksum of content, the same wherever the file lies. `noted` collects those of what is opened in its
block, so that a run can record its data and refuse to go on with other data; a part of one's own takes part by using
the opening functions that exist, or by calling `note` in its own.

    with noted() as opened:
        store = GraphStore.open("corpora/codex/graph")
    assert opened == {"graph": {"corpora/codex/graph": store.identity}}
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

Identities = dict[str, dict[str, str]]
"""Identity by kind (corpus, graph, ...) and place."""

_collecting: ContextVar[Identities | None] = ContextVar("collecting", default=None)
_kinds: ContextVar[set[str] | None] = ContextVar("kinds", default=None)


@contextmanager
def noted() -> Iterator[Identities]:
    """Collects what is opened in the block. An inner block keeps what it collects from the outer one."""
    found: Identities = {}
    token = _collecting.set(found)
    try:
        yield found
    finally:
        _collecting.reset(token)


@contextmanager
def kinds_opened() -> Iterator[set[str]]:
    """Collects the kinds of what is opened in the block, whoever collects identities. An inner block keeps its own."""
    found: set[str] = set()
    token = _kinds.set(found)
    try:
        yield found
    finally:
        _kinds.reset(token)


def note(kind: str, place: str | Path, identity: str) -> None:
    """Say that something of this kind was opened, to whoever collects it."""
    found = _collecting.get()
    if found is not None:
        found.setdefault(kind, {})[str(place)] = identity
    kinds = _kinds.get()
    if kinds is not None:
        kinds.add(kind)

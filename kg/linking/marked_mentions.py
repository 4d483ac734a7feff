"""Mentions and their candidate entities as texts, which a model compares (BLINK, arXiv:1911.03814, section 4)."""

from __future__ import annotations

from kg.graph.store import GraphStore

CONTEXT, MARKER = 128, "#"
"""Characters on either side of a mention, and the token on both sides of it."""


def marked(text: str, start: int, end: int, context: int = CONTEXT, marker: str = MARKER) -> str:
    """A mention with the whole words around it, and the marker on both sides."""
    before, after = text[max(0, start - context) : start], text[end : end + context]
    if start > context:
        before = before.partition(" ")[2]
    if end + context < len(text):
        after = after.rpartition(" ")[0]
    return f"{before.rstrip()} {marker} {text[start:end]} {marker} {after.lstrip()}".strip()


def described(graph: GraphStore, entity: str) -> str:
    """An entity's label and description, or else its id."""
    if entity not in graph:
        return entity
    return ": ".join(filter(None, (graph.name_of(entity), graph.description(entity)))) or entity

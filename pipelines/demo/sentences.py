"""Templates -> sentences with the exact character spans of their entities."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from pipelines.demo.world import Entity

Mention = Entity | tuple[str, Entity] | str
"""What fills a slot: an entity (by its label), an entity under another name, or plain text."""

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass
class Passage:
    """Text and the spans of its mentions: [start, end, entity id, score], in characters, sorted."""

    text: str = ""
    spans: list[list[Any]] = field(default_factory=list)

    def append(self, other: Passage) -> None:
        """Add a sentence after a space."""
        if self.text:
            self.text += " "
        shift = len(self.text)
        self.text += other.text
        self.spans += [[start + shift, end + shift, *rest] for start, end, *rest in other.spans]


@cache
def templates() -> dict[str, list[str]]:
    """The wordings by relation or purpose; `{s}` is the subject, `{o}` the object, `{n}` a number."""
    text = resources.files("pipelines.demo").joinpath("templates.json").read_text(encoding="utf-8")
    loaded: dict[str, list[str]] = json.loads(text)
    return loaded


def fill(template: str, slots: Mapping[str, Mention]) -> Passage:
    """One sentence; every slot that holds an entity becomes a span with score 1."""
    text, spans = "", []
    for i, part in enumerate(_SLOT.split(template)):
        if i % 2 == 0:
            text += part
            continue
        filler = slots[part]
        surface, entity = _surface(filler)
        if entity is not None:
            spans.append([len(text), len(text) + len(surface), entity.id, 1.0])
        text += surface
    return Passage(text, spans)


def choose(options: list[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """`count` different options, or all of them when there are fewer, in random order."""
    return [options[i] for i in rng.permutation(len(options))[:count]]


def rounded(population: int) -> str:
    """A population as people say it: two digits, then zeros."""
    scale = 10 ** max(0, len(str(population)) - 2)
    return f"{round(population / scale) * scale:,}"


def _surface(filler: Mention) -> tuple[str, Entity | None]:
    if isinstance(filler, str):
        return filler, None
    if isinstance(filler, tuple):
        return filler
    return filler.label, filler

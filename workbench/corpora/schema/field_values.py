"""Forms of field values: each has a description, a type, and a check of its content."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MEDIUM = re.compile(r"[a-z0-9_]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _anything(value: Any) -> None:
    return None


@dataclass(frozen=True)
class Value:
    """A form of values.

    `type` is the outermost type; it alone decides whether a field of an indexed WebDataset's record is used. `wrong`
    returns a message about an invalid value of that type, or None.
    """

    form: str
    type: type | tuple[type, ...]
    wrong: Callable[[Any], str | None] = _anything


@dataclass(frozen=True)
class Stretches(Value):
    """Stretches of a text: lists that begin with [start, end), in characters.

    `wrong` checks one stretch. `single` means that the value is one stretch, not a list of stretches; `ordered` that
    they are sorted; `entities` that the third element is an entity's id; `visible` that none consists of white space;
    `pointing` that the third element is the distance to another place in the text, which edits in between would change.
    """

    single: bool = False
    ordered: bool = False
    entities: bool = False
    visible: bool = False
    pointing: bool = False


def is_place(stretch: Any) -> bool:
    """Whether a stretch begins with two integers."""
    return (
        isinstance(stretch, list | tuple) and len(stretch) >= 2 and type(stretch[0]) is int and type(stretch[1]) is int
    )


def stretch(form: str, *more: type | tuple[type, ...]) -> Callable[[Any], str | None]:
    """A check of stretches: [start, end] followed by exactly elements of these types."""

    def wrong(found: Any) -> str | None:
        right = is_place(found) and len(found) == 2 + len(more) and all(map(isinstance, found[2:], more))
        return None if right else f"{found!r} is not {form}"

    return wrong


def named(found: Any) -> str | None:
    """Check a stretch with a name, which must be a visible word."""
    wrong = _NAMED(found)
    if wrong:
        return wrong
    if not found[2].strip():
        return f"the name in {found!r} is empty"
    return f"the name in {found!r} has control characters" if _CONTROL.search(found[2]) else None


def marked(found: Any) -> str | None:
    """Check a stretch with any elements after [start, end]."""
    return None if is_place(found) else f"{found!r} is not [start, end, ...]"


_NAMED = stretch("[start, end, name]", str)
_LINK = "[start, end, entity id, score]"
_PLAIN_LINK = stretch(_LINK, str, (int, float))


def link(found: Any) -> str | None:
    """Check a linked mention; labels, whole numbers by name, may follow the score."""
    if not (isinstance(found, list | tuple) and len(found) == 5 and isinstance(found[4], dict)):
        return _PLAIN_LINK(found)
    wrong = [label for label in found[4].values() if type(label) is not int]
    return f"the labels of {found!r} are not whole numbers by name" if wrong else _PLAIN_LINK(found[:4])


def strings(values: Iterable[Any]) -> str | None:
    """Check that values are strings."""
    for value in values:
        if not isinstance(value, str):
            return f"{str(value)[:80]!r} is of type {type(value).__name__}, not a string"
    return None


def strings_by_name(values: Mapping[Any, Any]) -> str | None:
    """Check that an object holds strings."""
    return strings([*values, *values.values()])


def labels(values: Mapping[Any, Any]) -> str | None:
    """Check labels: each is a number or the name of a class."""
    for name, label in values.items():
        if isinstance(label, bool) or not isinstance(label, int | float | str):
            return f"label {name!r} = {str(label)[:80]} is neither a number nor the name of a class"
        if isinstance(label, float) and not math.isfinite(label):
            return f"label {name!r} = {label} is not a finite number"
        if isinstance(label, str) and not label.strip():
            return f"label {name!r} = {label[:80]!r} is empty; give the name of the class, or leave the label out"
    return None


def number(value: Any) -> str | None:
    """Check that a number is not negative."""
    return f"{value!r} is not a number from 0" if isinstance(value, bool) or value < 0 else None


def rows(found: Sequence[Any], required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> str | None:
    """Check a list of objects that have keys of these types; other keys are allowed."""
    kinds = [*required.items(), *(optional or {}).items()]
    for row in found:
        if not isinstance(row, dict):
            return f"{str(row)[:80]!r} is not an object"
        for name, kind in kinds:
            if name not in row:
                if name in required:
                    return f"{str(row)[:80]} has no {name!r}"
            elif not isinstance(row[name], kind):
                return f"{name!r} of {str(row)[:80]} is of type {type(row[name]).__name__}"
    return None


def questions(found: Sequence[Any]) -> str | None:
    """Check questions on an image."""
    return rows(found, {"question": str, "answers": list})


def triples(found: Sequence[Any]) -> str | None:
    """Check the triples of a head entity and their qualifiers."""
    fact: dict[str, Any] = {"relation": str, "tail": str}
    texts = {"relation_text": str, "tail_text": str}
    wrong = rows(found, fact, {**texts, "qualifiers": list})
    if wrong:
        return wrong
    qualified = (rows(row["qualifiers"], fact, texts) for row in found if "qualifiers" in row)
    return next(filter(None, qualified), None)


def near_words(found: Sequence[Any]) -> str | None:
    """Check words near another one: [word, count], the count a positive number."""
    for pair in found:
        right = isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) and _is_from_0(pair[1])
        if not right or not pair[1]:
            return f"{str(pair)[:80]} is not [word, count] with a count above 0"
    return None


def media(found: Mapping[Any, Any]) -> str | None:
    """Check media by name; a member's name contains the medium's name."""
    for name, data in found.items():
        if not (isinstance(name, str) and _MEDIUM.fullmatch(name)):
            return f"{name!r} cannot name a medium; allowed: lower-case letters, digits and _"
        if not isinstance(data, bytes):
            return f"the medium {name!r} is of type {type(data).__name__}, not bytes"
    return None


def times(found: Sequence[Any]) -> str | None:
    """Check stretches of time: [from, to] in seconds, in this order."""
    for stretch in found:
        right = isinstance(stretch, list | tuple) and len(stretch) == 2 and all(map(_is_from_0, stretch))
        if not right or stretch[0] > stretch[1]:
            return f"{str(stretch)[:80]} is not [from, to] in seconds from 0"
    return None


def boxes(found: Sequence[Any]) -> str | None:
    """Check boxes: x1, y1, x2, y2 in 0..1 with positive width and height, or [] for none."""
    for box in found:
        if not isinstance(box, list | tuple) or len(box) not in (0, 4) or not all(map(_is_from_0, box)):
            return f"{str(box)[:80]} is neither [x1, y1, x2, y2] nor [] for none"
        if box and not (box[0] < box[2] <= 1 and box[1] < box[3] <= 1):
            return f"{str(box)[:80]} is not x1 < x2 and y1 < y2 in 0..1 of the width and height"
    return None


def phrase(found: Any) -> str | None:
    """Check a phrase and the boxes of its object."""
    wrong = _PHRASE(found) or named(list(found[:3]))
    return wrong or boxes(found[4])


def spoken(found: Any) -> str | None:
    """Check a stretch that is spoken from one second to another."""
    wrong = _SPOKEN(found)
    return wrong or times([found[2:]])


def _is_from_0(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


_PHRASE = stretch("[start, end, name, number, boxes]", str, str, list)
_SPOKEN = stretch("[start, end, from second, to second]", (int, float), (int, float))
TEXT = Value("text", str)
TEXTS = Value("list of texts", list, strings)
TEXTS_BY_NAME = Value("texts by name", dict, strings_by_name)
NAME = Value("string", str)
NAMES = Value("list of strings", list, strings)
NUMBER = Value("number from 0", int, number)
LABELS = Value("by name a number, or the name of a class", dict, labels)
OBJECT = Value("object", dict)
IMAGE = Value("encoded bytes", bytes)
MEDIA = Value("encoded bytes by name", dict, media)
ARRAYS = Value("arrays by name", dict)
TIMES = Value("list of [from, to] in seconds", list, times)
BOXES = Value("list of [x1, y1, x2, y2], or []", list, boxes)
PHRASES = Stretches("[start, end, name, number, boxes]", list, phrase, ordered=True, visible=True)
SPOKEN = Stretches("[start, end, from second, to second]", list, spoken, ordered=True, visible=True)
QUESTIONS = Value("list of objects", list, questions)
TRIPLES = Value("list of objects", list, triples)
NEAR_WORDS = Value("list of [word, count]", list, near_words)
LINKS = Stretches(
    _LINK,
    list,
    link,
    ordered=True,
    entities=True,
)
NAMED = Stretches("[start, end, name]", list, named, ordered=True, visible=True)
ARCS = Stretches(
    "[start, end, distance of the head, relation]",
    list,
    stretch("[start, end, distance of the head, relation]", int, str),
    ordered=True,
    visible=True,
    pointing=True,
)
PLACES = Stretches("[start, end]", list, stretch("[start, end]"))
MARKS = Stretches("[start, end, ...]", list, marked)
MARK = Stretches("[start, end]", list, stretch("[start, end]"), single=True)

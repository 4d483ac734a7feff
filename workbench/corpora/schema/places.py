"""Stretches in the texts of a sample: whether they lie inside the texts, and how they change with windows and edits.

One rule holds for all fields with `spans_of`: for one text the value is a stretch or a list of stretches; for several
texts there is a list for each. Stretches are half-open and count characters of the stored text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from workbench.core.errors import WorkbenchError, shown
from workbench.corpora.schema.field_values import TEXT, TEXTS, TEXTS_BY_NAME, Stretches
from workbench.corpora.schema.schema import FIELDS, SchemaField, links_among, marks_of, parallel_fields
from workbench.sequences.sequence import Sample


def linked_entities(sample: Sample) -> Iterator[str]:
    """The ids of the entities that are linked in the texts of a sample, with repetitions."""
    for field in links_among(sample):
        yield from (str(link[2]) for _, links in marked_texts(sample, field) for link in links)


def without_links(sample: Sample) -> Sample:
    """The sample without the linked entities in its texts."""
    links = {field.name for field in links_among(sample)}
    return {name: value for name, value in sample.items() if name not in links} if links else sample


def marked_texts(sample: Sample, field: SchemaField) -> list[tuple[str, list[Any]]]:
    """The texts that a field of the sample marks, each with its stretches, in the order of the texts.

    Raises:
        WorkbenchError: there is no such text, or a text has no list of stretches.
    """
    assert field.spans_of is not None
    found, text = sample[field.name], sample.get(field.spans_of)
    if text is None:
        raise WorkbenchError(
            f"there are {field.name}, but no {field.spans_of}; add the {field.spans_of}, or leave {field.name} out"
        )
    if isinstance(text, str):
        return [(text, [found] if _stretches(field).single else found)]
    if isinstance(text, dict):
        if text.keys() != found.keys():
            raise WorkbenchError(
                f"{field.name} has {', '.join(found)} for the {field.spans_of} {', '.join(text)}; give one for each"
            )
        text, found = list(text.values()), [found[name] for name in text]
    if len(text) != len(found):
        raise WorkbenchError(f"{len(found)} lists in {field.name} for {len(text)} {field.spans_of}; give one for each")
    if not all(isinstance(one, str) for one in text) or not all(isinstance(listed, list) for listed in found):
        raise WorkbenchError(f"{field.spans_of} must be strings, and {field.name} a list of stretches for each")
    return list(zip(text, found, strict=True))


def texts_in(sample: Sample) -> Iterator[str]:
    """Every natural-language text of a sample."""
    for name, value in sample.items():
        field = FIELDS.get(name)
        if field is None or field.spans_of:
            continue
        if field.value is TEXT:
            yield value
        elif field.value is TEXTS:
            yield from value
        elif field.value is TEXTS_BY_NAME:
            yield from value.values()


def check_places(sample: Sample) -> None:
    """Check the stretches of a sample, whose values have the schema's types.

    Raises:
        WorkbenchError: a stretch does not lie inside its text, or does not contain the quoted text.
    """
    for name in sample:
        field = FIELDS.get(name)
        if field is not None and field.spans_of:
            for text, stretches in marked_texts(sample, field):
                _check(field, text, stretches)
                if field.quotes and stretches:
                    _check_quoted(field.name, [text[start:end] for start, end in stretches], sample, field.quotes)


def stretches_in(sample: Sample, text: str) -> Iterator[Any]:
    """All stretches that fields of the sample mark in one of its texts (a string)."""
    for field in marks_of(text):
        if field.name in sample:
            yield from [sample[field.name]] if _stretches(field).single else sample[field.name]


def take(sample: Sample, unit: str, start: int, end: int) -> Sample:
    """The slice [start, end) of a sample: characters of a text with the stretches inside, or elements of a list.

    A sample without the unit is returned whole.
    """
    cut = dict(sample)
    if unit not in sample:
        return cut
    cut[unit] = sample[unit][start:end]
    if isinstance(cut[unit], str):
        return _with_marks(cut, unit, lambda stretches: _inside(stretches, start, end))
    return cut | {
        field.name: sample[field.name][start:end]
        for field in (*marks_of(unit), *parallel_fields(unit))
        if field.name in sample
    }


def with_texts(sample: Sample, unit: str, texts: list[Any]) -> Sample:
    """The sample with other texts in one of its lists, without marks; if the number is unchanged, times stay."""
    gone = {field.name for field in marks_of(unit)}
    if len(texts) != len(sample.get(unit, ())):
        gone |= {field.name for field in parallel_fields(unit)}
    return {**{name: value for name, value in sample.items() if name not in gone}, unit: texts}


def splice(sample: Sample, unit: str, edits: Sequence[tuple[int, int, str]]) -> Sample:
    """The sample with stretches of one of its texts replaced.

    Stretches that fields mark in the text move with it. A stretch that an edit replaces covers the new characters. A
    stretch that an edit overlaps otherwise is left out; so are stretches with distances, which would be wrong.

    Args:
        unit: the text, a string.
        edits: (start, end, characters), sorted and disjoint.
    """
    text, pieces, done = sample[unit], [], 0
    for start, end, new in edits:
        pieces += [text[done:start], new]
        done = end
    pointing = {field.name for field in marks_of(unit) if _stretches(field).pointing} if edits else set()
    spliced = {name: value for name, value in sample.items() if name not in pointing}
    spliced[unit] = "".join([*pieces, text[done:]])
    return _with_marks(spliced, unit, lambda stretches: _follow(stretches, edits))


def _with_marks(sample: Sample, text: str, change: Callable[[Sequence[Any]], list[list[Any]]]) -> Sample:
    """The sample with the stretches in one of its texts (a string) changed."""
    changed = dict(sample)
    for field in marks_of(text):
        if field.name not in sample:
            continue
        if not _stretches(field).single:
            changed[field.name] = change(sample[field.name])
        elif moved := change([changed.pop(field.name)]):
            changed[field.name] = moved[0]
    return changed


def _inside(stretches: Sequence[Any], start: int, end: int) -> list[list[Any]]:
    return [[s[0] - start, s[1] - start, *s[2:]] for s in stretches if s[0] >= start and s[1] <= end]


def _follow(stretches: Sequence[Any], edits: Sequence[tuple[int, int, str]]) -> list[list[Any]]:
    moved = []
    for first, last, *more in stretches:
        by = sum(len(new) - (end - start) for start, end, new in edits if end <= first)
        over = [(start, end, new) for start, end, new in edits if start < last and first < end]
        if not over:
            moved.append([first + by, last + by, *more])
        elif over[0][:2] == (first, last):
            moved.append([first + by, first + by + len(over[0][2]), *more])
    return moved


def _check(field: SchemaField, text: str, stretches: Sequence[Any]) -> None:
    value, previous = _stretches(field), (0, 0)
    for stretch in stretches:
        wrong = value.wrong(stretch)
        if wrong:
            raise WorkbenchError(f"{field.name}: {wrong}")
        start, end = stretch[0], stretch[1]
        if not 0 <= start < end <= len(text):
            of = f" of entity {stretch[2]!r}" if value.entities else ""
            raise WorkbenchError(
                f"{field.name}: [{start}, {end}){of} lies outside its text of {len(text)} characters; stretches are "
                "half-open and count characters (not bytes) of the stored text"
            )
        if value.visible and text[start:end].isspace():
            raise WorkbenchError(f"{field.name}: [{start}, {end}) is white space; mark words")
        if value.ordered and (start, end) < previous:
            raise WorkbenchError(
                f"{field.name}: [{start}, {end}) comes after [{previous[0]}, {previous[1]}); sort them"
            )
        previous = (start, end)


def _check_quoted(name: str, read: list[str], sample: Sample, quoted: str) -> None:
    wanted = sample.get(quoted, [])
    if len(read) != len(wanted):
        raise WorkbenchError(
            f"{name}: {len(read)} for {len(wanted)} {quoted}; give none, or one for each, in the same order"
        )
    for number, (here, there) in enumerate(zip(read, wanted, strict=True)):
        if here != there:
            raise WorkbenchError(
                f"{name}: {number} reads {shown(here)}, but {quoted} has {shown(there)} at this index; both must be "
                "identical"
            )


def _stretches(field: SchemaField) -> Stretches:
    return cast(Stretches, field.value)

"""Maps the columns of a row (a line of JSON, a line of a table) to the fields of a sample."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pipelines.readers.reader import MalformedError
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.options.bounds import Name
from workbench.corpora.schema.field_values import LABELS, NAMES, NUMBER, TEXT, TEXTS, Stretches, Value
from workbench.corpora.schema.members import IN_JSON
from workbench.corpora.schema.schema import FIELDS, SchemaField, fields_of
from workbench.corpora.shards.record import check_sample
from workbench.sequences.sequence import Sample

Source = Name | list[Name] | dict[Name, Name] | None
"""The source of a field: a column, several that form a list, several by name, or none."""

_INTEGER, _NUMBER = re.compile(r"[+-]?\d{1,18}"), re.compile(r"[+-]?\d*\.?\d+(e[+-]?\d+)?", re.IGNORECASE)
_WORD = re.compile(r"\S+")
GOLD, UNDECIDED = "gold_label", "-"
"""Label in SNLI and MNLI of a pair without agreement of the annotators."""


KNOWN = {
    "text": ("text", "text_a", "sentence", "sentence1", "premise", "question1"),
    "second": ("second", "text_b", "sentence2", "hypothesis", "question2"),
    "labels": ("label", "labels", "gold_label", "score", "is_duplicate"),
}
"""Usual names of columns in published sets, by field."""
QUESTION = {"text": "question", "second": "sentence"}
"""QNLI: a question and the sentence that may answer it."""


def fillable(kind: str) -> dict[str, SchemaField]:
    """The fields of a kind that a row can fill: those in the JSON member, except `meta`."""
    return {name: field for name, field in fields_of(kind).items() if field.codec is IN_JSON and name != "meta"}


def check_sources(kind: str, sources: Mapping[str, Source]) -> None:
    """Raises WorkbenchError if `sources` names a field that samples of the kind lack."""
    for name in sources:
        if name not in fillable(kind):
            raise unknown("field", name, fillable(kind), f"--option fields (docs/samples.md, kind {kind})")


def columns_of(sources: Mapping[str, Source]) -> set[str]:
    """The columns that the fields use."""
    named = [
        [s] if isinstance(s, str) else list(s.values() if isinstance(s, dict) else s or ()) for s in sources.values()
    ]
    return {column for columns in named for column in columns}


def with_own(row: Mapping[str, Any], kind: str, sources: Mapping[str, Source]) -> dict[str, Source]:
    """The sources, and the columns that have the name of a field of the kind."""
    used = columns_of(sources)
    return {**{name: name for name in fillable(kind) if name in row and name not in used}, **sources}


def usual_sources(columns: Collection[str], fields: Mapping[str, Source]) -> dict[str, Source]:
    """`fields`, and the columns with the usual names in published sets: text, second text and label."""
    sources = dict(fields)
    for name, usual in KNOWN.items():
        taken = columns_of(sources)
        found = [column for column in usual if column in columns and column not in taken]
        if name not in sources and found:
            sources[name] = [found[0]] if name == "labels" else found[0]
    found_alone = sources.get("text") == QUESTION["second"] and not QUESTION.keys() & fields.keys()
    if found_alone and "second" not in sources and QUESTION["text"] in set(columns) - columns_of(sources):
        sources |= QUESTION
    return sources


def no_consensus(row: Mapping[str, Any], sources: Mapping[str, Source]) -> bool:
    """Whether the label means that the annotators did not agree; published results exclude such pairs."""
    return row.get(GOLD) == UNDECIDED and GOLD in columns_of({"labels": sources.get("labels")})


def fill(row: Mapping[str, Any], sources: Mapping[str, Source], where: str) -> Sample:
    """The fields of a sample by `sources`; null fields are left out.

    Texts may be lists of words, which are joined by spaces. `tags` may be a tag for each word of the text. A list of
    texts with one element may be given as that element.

    Raises:
        MalformedError: a column is missing, or does not hold what the schema allows.
    """
    sample: Sample = {}
    for name, source in sources.items():
        value = None if source is None else _value(row, name, source, where)
        if value is not None:
            sample[name] = _in_order(FIELDS[name].value, _converted(FIELDS[name].value, value))
    if isinstance(sample.get("tags"), str) or is_strings(sample.get("tags")):
        sample["tags"] = _tags(sample, where)
    for name, value in sample.items():
        if FIELDS[name].value is TEXT and is_strings(value):
            sample[name] = " ".join(value)
    _check(sample, where)
    return sample


def _value(row: Mapping[str, Any], name: str, source: Name | list[Name] | dict[Name, Name], where: str) -> Any:
    listed = [source] if isinstance(source, str) else list(source.values() if isinstance(source, dict) else source)
    missing = next((column for column in listed if column not in row), None)
    if missing is not None:
        raise MalformedError(
            f"no field {missing!r}",
            where,
            f"fields: {', '.join(row) or 'none'}; choose with --option fields={{{name}: NAME}}",
        )
    if isinstance(source, dict):
        return {key: row[column] for key, column in source.items()}
    if isinstance(source, list):
        return (
            dict(zip(source, (row[c] for c in source), strict=True))
            if FIELDS[name].value is LABELS
            else [row[c] for c in source]
        )
    labelled = FIELDS[name].value is LABELS and row[source] is not None and not isinstance(row[source], dict)
    return {source: row[source]} if labelled else row[source]


def _converted(value: Value, found: Any) -> Any:
    """Numbers from the text of a table, and truth values as numbers."""
    if value is LABELS and isinstance(found, dict):
        return {name: _label(label) for name, label in found.items() if label is not None}
    if value in (TEXTS, NAMES) and isinstance(found, str):
        return [found]
    return _number(found) if value is NUMBER else found


def _in_order(value: Value, found: Any) -> Any:
    """Spans of a text from their places, if the schema has spans here; other values stay."""
    if not isinstance(value, Stretches) or not value.ordered:
        return found
    if isinstance(found, dict):
        return {name: _in_order(value, inner) for name, inner in found.items()}
    if not isinstance(found, list) or not all(isinstance(each, list) for each in found):
        return found
    if all(len(each) > 1 and all(isinstance(place, int) for place in each[:2]) for each in found):
        return sorted(found, key=lambda stretch: stretch[:2])
    return [_in_order(value, each) for each in found]


def _label(found: Any) -> Any:
    """The number of a cell if it is spelt so; a class keeps its spelling (2.10, 01)."""
    number = _number(found)
    return found if isinstance(found, str) and str(number) != found else number


def _number(found: Any) -> Any:
    if isinstance(found, bool):
        return int(found)
    if isinstance(found, str) and _INTEGER.fullmatch(found):
        return int(found)
    return float(found) if isinstance(found, str) and _NUMBER.fullmatch(found) else found


def is_strings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _tags(sample: Sample, where: str) -> list[list[Any]]:
    """A span for each word of the text, with its tag; a word of white space outside of all chunks has none."""
    tags = sample["tags"].split() if isinstance(sample["tags"], str) else sample["tags"]
    text = sample.get("text", "")
    places = word_places(text)
    if len(tags) != len(places):
        raise MalformedError(
            "the number of tags differs from the number of words",
            where,
            f"{len(tags)} tags for {len(places)} words between spaces; {_advice('tags')}",
        )
    words = [text[slice(*place)] for place in places] if isinstance(text, str) else text
    of_words = zip(places, words, tags, strict=True)
    return [[*place, tag] for place, word, tag in of_words if word.strip() or tag != "O"]


def word_places(text: str | Sequence[str]) -> list[tuple[int, int]]:
    """The places of a text's words; those of a list of words are in the text joined by spaces."""
    if isinstance(text, str):
        return [match.span() for match in _WORD.finditer(text)]
    places, at = [], 0
    for word in text:
        places.append((at, at + len(word)))
        at += len(word) + 1
    return places


def _check(sample: Sample, where: str) -> None:
    """Raises MalformedError if a field violates the schema."""
    for name, value in sample.items():
        if not isinstance(value, FIELDS[name].type):
            raise MalformedError(
                f"field {name!r} has the wrong type", where, f"found {type(value).__name__}; {_advice(name)}"
            )
    try:
        check_sample(sample)
    except WorkbenchError as error:
        name = str(error).partition(":")[0]
        raise MalformedError(f"the field {name!r} does not fit", where, f"{error}; {_advice(name)}") from error


def _advice(name: str) -> str:
    return f"if it means something else, --option 'fields={{{name}: null}}' leaves it to meta"

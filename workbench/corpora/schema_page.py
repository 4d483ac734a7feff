"""The page docs/samples.md, made from the schema: `python -m workbench.corpora.schema_page > docs/samples.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from workbench.corpora.members import IN_JSON
from workbench.corpora.schema import FIELDS, KINDS, READING, SCHEMA, Field
from workbench.corpora.values import Stretches, Value

HEAD = """# Samples

What a record of a corpus may hold, by its kind. This page is made from the table in `workbench/corpora/schema.py`
(`python -m workbench.corpora.schema_page > docs/samples.md`), which writing, reading, checking and showing go by.

A sample is a plain dict. A field is stored in the record's member `json`, unless the table names members. Items may be
cut from a field that says so: windows of a text, single elements of a list. Stretches of a text are half-open and count
characters of the stored text: they lie inside it, no window is cut within one, and a window has those inside it.
"""


def page() -> str:
    """The page as Markdown."""
    added = _table(("field", "content"), ((f"`{name}`", content) for name, content in READING.items()))
    parts = [
        HEAD,
        "## All kinds\n",
        _fields(field for field in SCHEMA if field.kinds == KINDS),
        "Added when it is read:\n",
        added,
    ]
    for kind in KINDS:
        parts += [f"## {kind}\n", _fields(field for field in SCHEMA if kind in field.kinds and field.kinds != KINDS)]
    return "\n".join(parts)


def _fields(fields: Iterable[Field]) -> str:
    return _table(("field", "value", "content"), ((f"`{f.name}`", _form(f), _content(f)) for f in fields))


def _form(field: Field) -> str:
    value: Value = field.value
    if not isinstance(value, Stretches):
        return value.form
    form = value.form if value.single else f"list of {value.form}"
    return {str: form, list: f"for each a {form}", dict: f"by name a {form}"}[FIELDS[str(field.spans_of)].value.type]  # type: ignore[index]


def _content(field: Field) -> str:
    notes = [
        *(["required"] if field.required else []),
        *([f"may stand in place of `{field.instead_of}`"] if field.instead_of else []),
        *([f"one for each of `{field.each_of}`"] if field.each_of else []),
        *([f"its number in `{field.index_of}`, from 0"] if field.index_of else []),
        *(["items may be cut from it"] if field.unit else []),
        *([f"none, or one for each of `{field.quotes}` that reads exactly so"] if field.quotes else []),
        *([f"in characters of `{field.spans_of}`"] if field.spans_of else []),
        *([f"in member {field.codec.where}"] if field.codec is not IN_JSON else []),
    ]
    return "; ".join([field.content, *notes])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())

"""JSON lines, a JSON list, Parquet or Arrow: one document a row, its text in one field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES, RowReader
from pipelines.readers.reader import Drop, MalformedError, Match, Peek, Record, parse_row
from pipelines.readers.row_fields import (
    Source,
    check_sources,
    columns_of,
    fill,
    is_strings,
    no_consensus,
    usual_sources,
    with_own,
)
from pipelines.sources.files import record_key
from workbench.core.options.bounds import Name
from workbench.corpora.schema.schema import fields_of
from workbench.sequences.sequence import Sample

TEXT_FIELD = "text"
TOKENS, NER = "tokens", "ner_tags"
"""Words and their tags in published sets (CoNLL 2003)."""
MESSAGES = "messages"
"""The turns of a conversation in published sets, each with `role` and `content`."""
IN_PLACE = tuple(field.name for field in fields_of("text").values() if field.instead_of == "text")
"""The fields that may replace a text: translations, the turns of a dialogue."""


@dataclass(frozen=True)
class TextJsonLines(RowReader):
    """`text_field` holds the text (a string, or a list of words), `id_field` (or `key`) the document's name, if any.

    The other fields of text samples (docs/samples.md: `spans`, `second`, `tags`, ...) are copied, and so are texts and
    labels with the usual names in published sets (`sentence1`, `premise`, `label`, ...), and words with their tags
    (`tokens`, `ner_tags`). The `messages` of a conversation, each with a `role` and a `content`, become `turns` and
    `speakers`. `fields` maps fields of other
    names, one or several (`fields={second: question, labels: [relation], choices: [a, b], translations: {en: english},
    tags: null}`); null leaves a field to `meta`. Of the remaining fields those in `meta_fields` go to the sample's
    `meta`, by default all.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    text_field: Name = TEXT_FIELD
    id_field: Name = "id"
    fields: dict[Name, Source] = field(default_factory=dict)
    meta_fields: list[Name] | None = None

    def __post_init__(self) -> None:
        check_sources(self.kind, self.fields)

    @classmethod
    def detect(cls, source: Peek) -> Match:
        called = source.suffix in cls.suffixes and bool(source.row)
        return cls.likely(source, called or not {"text", MESSAGES, *IN_PLACE}.isdisjoint(source.row))

    def sample(self, record: Record) -> Sample | Drop:
        name, number, line = record.data
        row = _with_turns(parse_row(line, record.where), record.where)
        sources = self.sources(row)
        if "text" not in sources and not self.in_place(row):
            listed = ", ".join(row) or "none"
            raise MalformedError(
                f"no field {self.text_field!r}", record.where, f"fields: {listed}; choose with --option text_field=NAME"
            )
        if no_consensus(row, sources):
            return Drop("no gold label")
        document = row.get(self.id_field, row.get("key"))
        key = record_key(f"{name}-{number}" if document is None else str(document))
        taken = fill(row, with_own(row, self.kind, sources), record.where)
        meta = {
            "source": record.where.rpartition(":")[0],
            "line": number,
            **self._meta(row, taken.keys() | columns_of(sources)),
        }
        return {"key": key, **taken, "meta": meta}

    def sources(self, row: Mapping[str, Any]) -> dict[str, Source]:
        """The columns of the fields of a sample; usual names decide where the options do not.

        A field `label` is a label if it is a word or a number, as a list of tags is not. A `score` is not a label: on
        web pages it is their quality.
        """
        fields = {"text": self.text_field, **self.fields} if self.text_field in row else dict(self.fields)
        columns = [name for name, value in row.items() if isinstance(value, str | int | float) and name != "score"]
        found = usual_sources(columns, fields)
        if found.get("text", TOKENS) == TOKENS and not self.in_place(row) and is_strings(row.get(TOKENS)):
            found |= {"text": TOKENS} | ({} if "tags" in found or not is_strings(row.get(NER)) else {"tags": NER})
            return found
        if "text" not in fields and (self.text_field != TEXT_FIELD or self.in_place(row)):
            found.pop("text", None)
        return found

    def in_place(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has a field that may replace a text."""
        return any(name in row or name in self.fields for name in IN_PLACE)

    def _meta(self, row: dict[str, Any], used: set[str]) -> dict[str, Any]:
        own = {self.id_field, "key", "meta"} | used
        nested = row["meta"] if isinstance(row.get("meta"), dict) else {}
        wanted = [f for f in row if f not in own] if self.meta_fields is None else self.meta_fields
        return {**nested, **{f: row[f] for f in wanted if f in row}}


def _with_turns(row: dict[str, Any], where: str) -> dict[str, Any]:
    """The row with the turns and speakers of its messages, if it has any.

    Raises:
        MalformedError: a message without a role or content, with content that is no text, or with more than these.
    """
    messages = row.get(MESSAGES)
    if messages is None or "turns" in row:
        return row
    listed = messages if isinstance(messages, list) and all(isinstance(each, dict) for each in messages) else [{}]
    columns = [[each.get(name) for each in listed] for name in ("content", "role")]
    if not all(is_strings(column) for column in columns):
        raise MalformedError("messages without texts", where, 'each message is {"role": TEXT, "content": TEXT}')
    more = {name for each in listed for name, value in each.items() if value not in (None, "", [], {})}
    if lost := sorted(more - {"content", "role"}):
        allowed = "turns hold the role and the content alone; remove the others, or skip such rows with --on-error skip"
        raise MalformedError(f"messages with {', '.join(lost)}", where, allowed)
    others = {name: value for name, value in row.items() if name != MESSAGES}
    return {**others, "turns": columns[0], "speakers": columns[1]}

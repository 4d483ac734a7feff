"""Records of an existing WebDataset as samples: members by the schema's `foreign` names, and fields of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from workbench.core.files.text_files import decoded
from workbench.corpora.schema.field_values import LABELS, TEXT, TEXTS, TEXTS_BY_NAME
from workbench.corpora.schema.members import AS_MEDIA, JSON_MEMBER
from workbench.corpora.schema.schema import FIELDS, SCHEMA, SchemaField, fields_of
from workbench.corpora.shards.record import parse_object
from workbench.sequences.sequence import Sample

FOREIGN_MEMBERS = frozenset({JSON_MEMBER, *(member for field in SCHEMA for member in field.foreign)})


@cache
def foreign_fields(kind: str) -> dict[str, SchemaField]:
    """The fields of a kind, by the members that WebDatasets commonly use for them."""
    return {member: field for field in fields_of(kind).values() for member in field.foreign}


def decode_foreign(members: Mapping[str, bytes], kind: str) -> Sample:
    """The sample of a record of an existing WebDataset.

    `txt` is the text, or the caption of an image. JSON fields that fit the schema are used; the others go to `meta`.
    `cls` becomes `labels["cls"]`. An image member becomes `image`; several named ones become `media`. Other members are
    left out.

    Raises:
        ValueError: a member is damaged; the message names it.
    """
    stored = parse_object(members[JSON_MEMBER]) if JSON_MEMBER in members else {}
    known = fields_of(kind)
    sample: Sample = {f: v for f, v in stored.items() if f in known and _fits(known[f], v)}
    rest = {f: v for f, v in stored.items() if f not in sample}
    if "captions" in known and "captions" not in sample:
        sample |= _captions(stored)
    for member, data in members.items():
        field = foreign_fields(kind).get(member)
        if field is not None:
            sample[field.name] = _value(field, sample.get(field.name), member, data)
    for member in several_media(members, kind):
        sample["media"] = AS_MEDIA.read(sample.get("media"), member, members[member])
    if rest:
        sample["meta"] = {**sample.get("meta", {}), **rest}
    return sample


def _captions(stored: Mapping[str, Any]) -> Sample:
    """The captions in a JSON object under their common names: one text, or a list of texts."""
    for name in ("caption", "text"):
        found = stored.get(name)
        texts = [found] if isinstance(found, str) else found
        if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            return {"captions": texts}
    return {}


def several_media(members: Iterable[str], kind: str) -> list[str]:
    """The members NAME.FORMAT that form `media`: at least two, and no image.

    A single one is usually an image whose file was accidentally named x.NAME.FORMAT.
    """
    names = list(members)
    if "media" not in fields_of(kind) or any(name in FIELDS["image"].foreign for name in names):
        return []
    named = [name for name in names if AS_MEDIA.reads(name)]
    return named if len(named) > 1 else []


def _fits(field: SchemaField, value: Any) -> bool:
    """Whether a value is meant as this field. Texts and their stretches are recognised by their type alone, and are
    then checked."""
    spoken = field.value in (TEXT, TEXTS, TEXTS_BY_NAME) or field.spans_of is not None
    return isinstance(value, field.type) and (spoken or not field.value.wrong(value))


def _value(field: SchemaField, before: Any, member: str, data: bytes) -> Any:
    """A field's value with this member, in the form that WebDatasets commonly use instead of JSON."""
    if field.value is TEXT:
        return _text(member, data)
    if field.value is TEXTS:
        return [_text(member, data).strip()]
    if field.value is LABELS:
        return {**(before or {}), member: _integer(member, data)}
    return field.codec.read(before, member, data)


def _text(name: str, data: bytes) -> str:
    try:
        return decoded(data)
    except UnicodeDecodeError as error:
        raise ValueError(f"member {name} is not {error.encoding.upper()}: {error}") from error


def _integer(name: str, data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise ValueError(f"member {name} is not an integer: {error}") from error

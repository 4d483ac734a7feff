"""A record: the members of a shard that share a key, and the sample that they encode.

The table `workbench.corpora.schema.schema` lists the fields, their values and their members.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.text_files import decoded, parse_json
from workbench.corpora.schema.field_values import TEXT, TEXTS, TEXTS_BY_NAME
from workbench.corpora.schema.members import IN_JSON, JSON_MEMBER
from workbench.corpora.schema.places import check_places, stretches_in, texts_in
from workbench.corpora.schema.schema import FIELDS, KINDS, READING, field_of_member, fields_of, lacking, units_of
from workbench.corpora.shards.cuts import cut_points
from workbench.sequences.sequence import Sample

NUMBERED = ("labels", "meta")
"""The fields with numbers of people's own."""


class BadRecordError(WorkbenchError):
    """A record that cannot be read. `reason` is short and equal for equal causes, so that it can be counted."""

    def __init__(self, shard: str, key: str, reason: str, detail: str = "") -> None:
        super().__init__(f"shard {shard}, key {key!r}: {reason}{f' ({detail})' if detail else ''}")
        self.shard, self.key, self.reason, self.detail = shard, key, reason, detail

    def __reduce__(self) -> tuple[type[BadRecordError], tuple[str, str, str, str]]:
        return BadRecordError, (self.shard, self.key, self.reason, self.detail)


class NotFiniteError(WorkbenchError):
    """A sample with NaN or infinity, which JSON does not have."""


class EncodedRecord(NamedTuple):
    """A sample as a shard stores it: members, length per unit, stored cut points of the text."""

    members: dict[str, bytes]
    lengths: dict[str, int]
    cuts: list[int] | None


def without_nan(value: Any) -> tuple[Any, int]:
    """A JSON value with null for NaN and infinity, which JSON does not have, and their number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None, 1
    if isinstance(value, dict):
        found = {name: without_nan(each) for name, each in value.items()}
        return {name: each for name, (each, _) in found.items()}, sum(count for _, count in found.values())
    if isinstance(value, list | tuple):
        listed = [without_nan(each) for each in value]
        return [each for each, _ in listed], sum(count for _, count in listed)
    return value, 0


def encode(sample: Sample, kind: str) -> EncodedRecord:
    """The record of a sample. `key`, `corpus` and `draw` are not stored.

    Raises:
        WorkbenchError: a field is missing, unknown or has an invalid value; a stretch lies outside its text;
            the image is neither JPEG nor PNG nor WebP; a value is not JSON. Nothing is repaired silently.
    """
    _check_fields(sample, kind)
    check_sample(sample)
    plain: dict[str, Any] = {}
    members: dict[str, bytes] = {}
    for name, value in sample.items():
        if name not in READING:
            codec = FIELDS[name].codec
            if codec is IN_JSON:
                plain[name] = value
            else:
                members |= codec.write(value)
    try:
        stored = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        if without_nan(plain)[1]:
            raise NotFiniteError("a value is NaN or infinity, which JSON does not have") from error
        raise WorkbenchError(f"the sample cannot be stored as UTF-8 JSON: {error}") from error
    return EncodedRecord({JSON_MEMBER: stored, **members}, lengths_of(sample, kind), cuts_of(sample))


def check_sample(sample: Sample) -> None:
    """Check the values of a sample's fields, which have the right types.

    Raises:
        WorkbenchError: a field has an invalid value.
    """
    for name, value in sample.items():
        field = FIELDS.get(name)
        if field is not None and not field.spans_of:
            wrong = field.value.wrong(value)
            if wrong:
                raise WorkbenchError(f"{name}: {wrong}")
            if field.each_of and len(value) != len(sample.get(field.each_of, ())):
                raise WorkbenchError(
                    f"{name}: {len(value)} for {len(sample.get(field.each_of, ()))} {field.each_of}; give one for each"
                )
            if field.index_of and value >= len(sample.get(field.index_of, ())):
                raise WorkbenchError(f"{name}: {value} is not an index of {field.index_of}, which counts from 0")
    check_places(sample)


def lengths_of(sample: Sample, kind: str) -> dict[str, int]:
    """Length per unit: characters of the text, elements of a list."""
    return {unit: len(sample.get(unit) or ()) for unit in units_of(kind)}


def content_of(sample: Sample) -> int:
    """A hash of 64 bits of the content of a sample: its image, or its texts up to Unicode form and white space.

    Labels, marks and the key do not count. Samples with several media are distinguished by all of them and their
    texts, those of a triples corpus by their id. It is 0 where there is neither text nor medium.
    """
    if "image" in sample:
        content = sample["image"]
    else:
        texts = [sample["id"]] if "id" in sample else list(texts_in(sample))
        joined = "\0".join(" ".join(unicodedata.normalize("NFC", text).split()) for text in texts)
        content = joined.encode() + b"".join(sample.get("media", {}).values())
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") | 1 if content else 0


def characters_of(sample: Sample) -> dict[str, int]:
    """Characters of each field of texts. Texts by name (`translations`) are counted separately: `translations.en`."""
    found: dict[str, int] = {}
    for name, value in sample.items():
        kind = FIELDS[name].value if name in FIELDS else None
        if kind is TEXT:
            found[name] = len(value)
        elif kind is TEXTS:
            found[name] = sum(map(len, value))
        elif kind is TEXTS_BY_NAME:
            found |= {f"{name}.{key}": len(text) for key, text in value.items()}
    return found


def cuts_of(sample: Sample) -> list[int] | None:
    """Stored cut points of the sample's text; None if it has no text."""
    return cut_points(sample["text"], stretches_in(sample, "text")) if "text" in sample else None


def decode(members: Mapping[str, bytes]) -> Sample:
    """The sample of a record written by `encode`. An integer beyond 64 bits becomes a float.

    Raises:
        ValueError: a member is damaged; the message names it.
    """
    sample = parse_object(members[JSON_MEMBER]) if JSON_MEMBER in members else {}
    for member, data in members.items():
        if member != JSON_MEMBER:
            field = field_of_member(member)
            if field is not None:
                sample[field.name] = field.codec.read(sample.get(field.name), member, data)
    return sample


def parse_object(data: bytes) -> dict[str, Any]:
    """The object in a member `json`.

    Raises:
        ValueError: it is damaged, or is not an object.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _lenient(data)
    if not isinstance(value, dict):
        raise ValueError(f"member json holds a {type(value).__name__}, not an object")
    return _lenient(data) if any(map(_is_rounded, map(value.get, NUMBERED))) else value


def _is_rounded(value: Any) -> bool:
    """Whether there may be an integer of more than 64 bits, which orjson reads as a float."""
    if isinstance(value, dict | list):
        return any(map(_is_rounded, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and abs(value) >= 1 << 63


def _lenient(data: bytes) -> Any:
    """A JSON value read by Python's parser, which accepts NaN and unpaired surrogates, as other tools write them."""
    try:
        return parse_json(decoded(data))  # json.loads would also guess UTF-16 without a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"member json is not {error.encoding.upper()}: {error}") from error
    except ValueError as error:
        raise ValueError(f"member json is not JSON: {error}") from error


def _check_fields(sample: Sample, kind: str) -> None:
    if kind not in KINDS:
        raise unknown("kind of corpus", kind, KINDS)
    known = fields_of(kind)
    for name, value in sample.items():
        if name in READING:
            continue
        if name not in known:
            raise unknown("field", name, known, f"a sample of kind {kind} (other data belongs into 'meta')")
        if not isinstance(value, known[name].type):
            raise WorkbenchError(f"field {name!r} is of type {type(value).__name__}; allowed: {known[name].value.form}")
    missing = lacking(kind, sample)
    if missing:
        raise WorkbenchError(f"a sample of kind {kind} lacks {', '.join(missing)}; found {sorted(sample)}")

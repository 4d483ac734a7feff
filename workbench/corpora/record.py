"""A record: the members of a shard that share a key, and the sample they stand for.

Member `json` holds everything but images and arrays; the image is member `jpg`, `png` or `webp`; region arrays are
member `regions.npz`, read without pickle. The schema is the table under "Samples" in docs/architecture.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from workbench.corpora.cuts import cut_points
from workbench.errors import WorkbenchError, unknown
from workbench.files import arrays
from workbench.files.json_values import parse_json
from workbench.sequences.sequence import Sample

FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "text": {"text": str, "spans": list, "mask_spans": list, "mention": list, "types": list},
    "image-text": {"image": bytes, "captions": list, "caption_spans": list, "questions": list, "regions": dict},
    "triples": {"id": str, "label": str, "aliases": list, "description": str, "types": list, "triples": list},
}
COMMON: dict[str, type | tuple[type, ...]] = {"labels": dict, "meta": dict}
REQUIRED = {"text": ("text",), "image-text": ("image",), "triples": ("id", "triples")}
UNITS = {"text": ("text",), "image-text": ("captions", "questions"), "triples": ("triples",)}
READING = ("key", "corpus", "draw")
"""Fields that the reader adds; they are not stored."""


class BadRecordError(WorkbenchError):
    """A record that cannot be read. `reason` is short and the same for equal causes, so that it can be counted."""

    def __init__(self, shard: str, key: str, reason: str, detail: str = "") -> None:
        super().__init__(f"shard {shard}, key {key!r}: {reason}{f' ({detail})' if detail else ''}")
        self.shard, self.key, self.reason, self.detail = shard, key, reason, detail

    def __reduce__(self) -> tuple[type[BadRecordError], tuple[str, str, str, str]]:
        return BadRecordError, (self.shard, self.key, self.reason, self.detail)


class Encoded(NamedTuple):
    """What a shard stores of a sample: members, length per unit, stored cut points of the text."""

    members: dict[str, bytes]
    lengths: dict[str, int]
    cuts: list[int] | None


def encode(sample: Sample, kind: str) -> Encoded:
    """The record of a sample. `key`, `corpus` and `draw` are not stored.

    Raises:
        WorkbenchError: a field is missing, unknown or of the wrong type; a span lies outside its text; the image is
            neither JPEG nor PNG nor WebP; a value is not JSON. Nothing is repaired silently.
    """
    _check_fields(sample, kind)
    members: dict[str, bytes] = {}
    plain = {k: v for k, v in sample.items() if k not in (*READING, "image", "regions")}
    check_places(sample)
    try:
        members["json"] = json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise WorkbenchError(f"the sample cannot be stored as UTF-8 JSON: {error}") from error
    if "image" in sample:
        members[image_kind(sample["image"])] = sample["image"]
    if "regions" in sample:
        members["regions.npz"] = arrays.pack(sample["regions"])
    return Encoded(members, lengths_of(sample, kind), cuts_of(sample))


def lengths_of(sample: Sample, kind: str) -> dict[str, int]:
    """Length per unit: characters of the text, elements of a list."""
    return {unit: len(sample.get(unit) or ()) for unit in UNITS[kind]}


def cuts_of(sample: Sample) -> list[int] | None:
    """Stored cut points of the sample's text; None where it has no text."""
    if "text" not in sample:
        return None
    return cut_points(sample["text"], [*sample.get("spans", ()), *_stretches(sample)])


def decode(members: Mapping[str, bytes]) -> Sample:
    """The sample of a record written by `encode`. An integer beyond 64 bits comes back as a float.

    Raises:
        ValueError: a member is damaged; the message names it.
    """
    sample = _object(members["json"]) if "json" in members else {}
    for name, value in members.items():
        if name in IMAGES:
            sample["image"] = value
        elif name == "regions.npz":
            sample["regions"] = arrays.unpack(value)
    return sample


def decode_foreign(members: Mapping[str, bytes], kind: str) -> Sample:
    """The sample of a record of somebody else's WebDataset.

    `txt` is the text, or the caption of an image; `json` fields that the schema knows are taken, the rest goes to
    `meta`; `cls` becomes `labels["cls"]`; image members become `image`. Other members are left out.

    Raises:
        ValueError: a member is damaged; the message names it.
    """
    stored = _object(members["json"]) if "json" in members else {}
    known = {**FIELDS[kind], **COMMON}
    sample: Sample = {f: v for f, v in stored.items() if f in known and isinstance(v, known[f])}
    rest = {f: v for f, v in stored.items() if f not in sample}
    if kind == "image-text" and "captions" not in sample and isinstance(stored.get("caption"), str):
        sample["captions"] = [stored["caption"]]
    for name, value in members.items():
        if name in FOREIGN_IMAGES:
            sample["image"] = value
        elif name in FOREIGN_TEXTS:
            text = _text(name, value)
            sample.update({"captions": [text.strip()]} if kind == "image-text" else {"text": text})
        elif name == "cls":
            sample["labels"] = {**sample.get("labels", {}), "cls": _integer(name, value)}
        elif name == "regions.npz":
            sample["regions"] = arrays.unpack(value)
    if rest:
        sample["meta"] = {**sample.get("meta", {}), **rest}
    return sample


IMAGES = frozenset({"jpg", "png", "webp"})
FOREIGN_IMAGES = IMAGES | {"jpeg"}
FOREIGN_TEXTS = frozenset({"txt", "text"})
FOREIGN_MEMBERS = FOREIGN_IMAGES | FOREIGN_TEXTS | {"json", "cls", "regions.npz"}


def take(sample: Sample, unit: str, start: int, end: int) -> Sample:
    """The part [start, end) of a sample: characters of its text with the spans inside, or elements of a list."""
    part = dict(sample)
    part[unit] = sample[unit][start:end]
    if unit == "text":
        for name in ("spans", "mask_spans"):
            if name in sample:
                inside = (s for s in sample[name] if s[0] >= start and s[1] <= end)
                part[name] = [[s[0] - start, s[1] - start, *s[2:]] for s in inside]
        if "mention" in sample:
            first, last = sample["mention"]
            part.pop("mention")
            if first >= start and last <= end:
                part["mention"] = [first - start, last - start]
    if unit == "captions" and "caption_spans" in sample:
        part["caption_spans"] = sample["caption_spans"][start:end]
    return part


def check_spans(text: str, spans: Sequence[Sequence[Any]]) -> None:
    """Raises WorkbenchError where a span is not [start, end, entity id, score] inside the text, or out of order."""
    previous = (0, 0)
    for span in spans:
        if not _is_span(span):
            raise WorkbenchError(f"span {span!r} is not [start, end, entity id, score]")
        start, end = span[0], span[1]
        if not 0 <= start < end <= len(text):
            raise WorkbenchError(
                f"span [{start}, {end}) of entity {span[2]!r} lies outside its text of {len(text)} characters; "
                "spans are half-open and count characters (not bytes) of the stored text"
            )
        if (start, end) < previous:
            raise WorkbenchError(f"span [{start}, {end}) comes after [{previous[0]}, {previous[1]}); sort the spans")
        previous = (start, end)


def check_places(sample: Sample) -> None:
    """Raises WorkbenchError where a span, a stretch or the mention does not lie inside its text.

    The fields themselves are of the schema's types.
    """
    for text, spans in _linked_texts(sample):
        check_spans(text, spans)
    if len(sample.get("mention", (0, 0))) != 2:
        raise WorkbenchError(f"mention {sample['mention']!r} is not [start, end]")
    for stretch in _stretches(sample):
        inside = _is_place(stretch) and "text" in sample and 0 <= stretch[0] < stretch[1] <= len(sample["text"])
        if not inside:
            raise WorkbenchError(
                f"{stretch!r} in mask_spans or mention is no stretch [start, end, ...] inside its text of "
                f"{len(sample.get('text', ''))} characters; stretches are half-open and count characters (not bytes)"
            )


def _is_span(span: Any) -> bool:
    return _is_place(span) and len(span) == 4 and isinstance(span[2], str) and isinstance(span[3], int | float)


def _is_place(span: Any) -> bool:
    return isinstance(span, list | tuple) and len(span) >= 2 and type(span[0]) is int and type(span[1]) is int


def image_kind(data: bytes) -> str:
    """The member that an image is stored as (`IMAGES`), read off its first bytes."""
    if data.startswith(b"\xff\xd8\xff"):
        return "jpg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    raise WorkbenchError(
        f"the image starts with {bytes(data[:12])!r}: neither JPEG nor PNG nor WebP; convert it, or look whether the "
        "download saved an error page"
    )


def _check_fields(sample: Sample, kind: str) -> None:
    if kind not in FIELDS:
        raise unknown("kind of corpus", kind, FIELDS)
    known = {**FIELDS[kind], **COMMON}
    for name, value in sample.items():
        if name in READING:
            continue
        if name not in known:
            raise unknown("field", name, known, f"a sample of kind {kind} (anything else belongs into 'meta')")
        if not isinstance(value, known[name]):
            raise WorkbenchError(f"field {name!r} is of type {type(value).__name__}; the schema says {known[name]}")
    missing = [name for name in REQUIRED[kind] if name not in sample]
    if missing:
        raise WorkbenchError(f"a sample of kind {kind} lacks {', '.join(missing)}; found {sorted(sample)}")


def _stretches(sample: Sample) -> list[Any]:
    """The stretches to be masked and the mention to be typed."""
    return [*sample.get("mask_spans", ()), *([sample["mention"]] if "mention" in sample else [])]


def _linked_texts(sample: Sample) -> list[tuple[str, list[Any]]]:
    if "spans" in sample:
        if "text" not in sample:
            raise WorkbenchError("there are spans, but no text that they lie in")
        return [(sample["text"], sample["spans"])]
    if "caption_spans" not in sample:
        return []
    captions, linked = sample.get("captions", []), sample["caption_spans"]
    if len(captions) != len(linked):
        raise WorkbenchError(f"{len(linked)} lists in caption_spans for {len(captions)} captions; give one for each")
    if not all(isinstance(caption, str) for caption in captions) or not all(isinstance(s, list) for s in linked):
        raise WorkbenchError("captions must be strings, and caption_spans a list of spans for each")
    return list(zip(captions, linked, strict=True))


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _lenient(data)
    if not isinstance(value, dict):
        raise ValueError(f"member json holds a {type(value).__name__}, not an object")
    return value


def _lenient(data: bytes) -> Any:
    """As Python reads JSON: with NaN and half a surrogate pair, which other people's tools write."""
    try:
        return parse_json(str(data, "utf-8"))  # of bytes it would also guess UTF-16
    except UnicodeDecodeError as error:
        raise ValueError(f"member json is not UTF-8: {error}") from error
    except ValueError as error:
        raise ValueError(f"member json is not JSON: {error}") from error


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"member {name} is not UTF-8: {error}") from error


def _integer(name: str, data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise ValueError(f"member {name} is not an integer: {error}") from error

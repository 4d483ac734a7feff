"""Human-readable views of a corpus: counts, fields, provenance, and a few samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from workbench.core.images import FAILURES, open_image, orientation, upright_size
from workbench.corpora.corpus import Corpus
from workbench.corpora.reading.items import CorpusItems
from workbench.corpora.reading.order import EpochOrder
from workbench.corpora.schema.field_values import LINKS, NAMED
from workbench.corpora.schema.members import AS_IMAGE, AS_MEDIA, IMAGES, ArraysCodec, MediumCodec, medium_kind
from workbench.corpora.schema.places import marked_texts
from workbench.corpora.schema.schema import FIELDS, READING, SchemaField
from workbench.sequences.sequence import Sample

LONGEST = 400
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue")


def describe(corpus: Corpus) -> RenderableType:
    """The counts, the dropped records, and the fields of a corpus."""
    manifest = corpus.manifest
    counts = Table(title=Text(f"{corpus.name} ({manifest.kind})"), show_header=False, title_justify="left")
    counts.add_row("records", f"{manifest.records:,}")
    counts.add_row("shards", f"{len(manifest.shards):,} ({_bytes(manifest.bytes)})")
    for name, length in manifest.characters.items():
        counts.add_row(Text(name), f"{length:,} characters")
    for unit, length in manifest.lengths.items():
        if unit not in manifest.characters and length:
            counts.add_row(Text(unit), f"{length:,} characters" if unit == "text" else f"{length:,}")
    for reason, number in manifest.dropped.items():
        counts.add_row("dropped", Text(f"{number:,} x {reason}"))
    fields = Table(title="fields", title_justify="left")
    fields.add_column("field")
    fields.add_column("records", justify="right")
    fields.add_column("share", justify="right")
    for name, number in sorted(manifest.fields.items(), key=lambda field: -field[1]):
        fields.add_row(Text(name), f"{number:,}", f"{number / manifest.records:.0%}")
    return Group(counts, fields)


def origin(corpus: Corpus) -> RenderableType:
    """The provenance of a corpus: the command, its options and inputs, and facts about the corpus."""
    table = Table(title="provenance", show_header=False, title_justify="left")
    for name, value in [*corpus.manifest.provenance.items(), *corpus.manifest.about.items()]:
        table.add_row(Text(name), Text(_short(value)))
    return table


def preview(sample: Sample) -> RenderableType:
    """One sample: texts with their mentions underlined, sizes of images and arrays."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    shown = [FIELDS[name] for name in sample if name in FIELDS and FIELDS[name].value in (LINKS, NAMED)]
    for name, value in sample.items():
        if name not in READING and FIELDS.get(name) not in shown:
            table.add_row(Text(name), _value(name, value, [field for field in shown if field.spans_of == name], sample))
    return Panel(table, title=Text(f"{sample['corpus']}: {sample['key']}"), title_align="left")


def previews(corpus: Corpus, number: int, *, seed: int = 0) -> list[RenderableType]:
    """Previews of `number` records, sampled from the whole corpus; equal seeds draw equal records."""
    items = CorpusItems(corpus)
    places = np.arange(min(number, items.total))
    shards, records = EpochOrder(items.counts, seed=seed, group_shards=len(items.counts)).locate(0, places)
    return [preview(corpus.read(s, r)) for s, r in zip(shards.tolist(), records.tolist(), strict=True)]


def marked(text: str, spans: list[list[Any]]) -> Text:
    """A text whose mentions are underlined and followed by their entity."""
    shown, at = Text(), 0
    for number, (start, end, entity, *_) in enumerate(spans):
        if start < at:
            continue
        colour = _COLOURS[number % len(_COLOURS)]
        shown.append(text[at:start])
        shown.append(text[start:end], style=f"underline {colour}")
        shown.append(f" [{entity}]", style=f"dim {colour}")
        at = end
    shown.append(text[at:])
    return shown


def _value(name: str, value: Any, marks: Sequence[SchemaField], sample: Sample) -> RenderableType:
    """A field's value. A text is shown once for each field in `marks`, with the entities and names that the field
    marks."""
    codec = FIELDS[name].codec if name in FIELDS else None
    if codec is AS_IMAGE:
        return _image(value)
    if isinstance(codec, ArraysCodec):
        return Text(", ".join(f"{field} {list(array.shape)} {array.dtype}" for field, array in value.items()))
    if isinstance(codec, MediumCodec):
        return _medium(name, value)
    if codec is AS_MEDIA:
        return Group(*(Text(f"{medium}: ") + _medium(medium, data) for medium, data in value.items()))
    if marks:
        return Group(*(_linked(text, spans) for field in marks for text, spans in marked_texts(sample, field)))
    if isinstance(value, list):
        listed = [Text(_short(element)) for element in value[:5]]
        return Group(*listed, *([Text(f"... ({len(value)} in all)")] if len(value) > 5 else []))
    return Text(_short(value))


def _medium(name: str, data: bytes) -> Text:
    kind = medium_kind(name, data)
    return _image(data) if kind in IMAGES else Text(f"{kind}, {_bytes(len(data))}")


def _linked(text: str, spans: list[list[Any]]) -> Text:
    end = min(len(text), LONGEST)
    rest = Text(f" ... ({len(text):,} characters)" if end < len(text) else "")
    return marked(text[:end], [span for span in spans if span[1] <= end]) + rest


def _image(data: bytes) -> Text:
    try:
        with open_image(data) as image:
            (width, height), rotated = upright_size(image), orientation(image) != 1
            return Text(f"{image.format} {width} x {height}{' (rotated by EXIF)' * rotated}, {_bytes(len(data))}")
    except FAILURES as error:
        return Text(f"cannot be decoded: {error}", style="red")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"

"""Speech with transcripts as JSON lines: `{sound, transcript, words: [{word, start, end}, ...]}`.

`words` are those of a forced alignment, in their order, with seconds; also `[[start, end, word], ...]`. A missing
`transcript` (or `text`) is built from the words, joined by spaces. Classes of the speech are `labels`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Drop, Malformed, MalformedError, Peek, RawReader, Record, parse_row, require
from pipelines.readers.row_fields import Source, columns_of, fill
from pipelines.readers.seconds import stretch
from pipelines.sources.files import files, is_media, record_key
from pipelines.sources.image_store import Absent, open_store
from workbench.core.errors import unknown
from workbench.core.options.bounds import Location, Name
from workbench.sequences.sequence import Sample

LABELS = "labels"


@dataclass(frozen=True)
class SoundsJsonl(RawReader):
    """Each row is a record, and its `labels` are copied; `fields` names the columns that are labels:
    `fields={labels: [speaker, intent]}`. Other fields go to the sample's `meta`."""

    kind: ClassVar[str] = "speech-text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    sounds: list[Location] = field(default_factory=list)
    sound_field: Name = "sound"
    fields: dict[Name, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.fields:
            if name != LABELS:
                raise unknown("field", name, (LABELS,), "--option fields")

    def may_name(self, path: Path) -> bool:
        return is_media(path) or path.suffix == ".tar"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return "sound" in source.row

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        described = files(paths, self.suffixes)
        return [*described, *open_store(described[0], self.sounds, "sounds").files]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Raises WorkbenchError if none of the sounds is found."""
        store = open_store(files(paths, self.suffixes)[0], self.sounds, "sounds")
        found, missing, malformed = 0, 0, Malformed()
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                name = require(row, self.sound_field, str, record.where)
            if malformed:
                yield from malformed.records()
                continue
            ref = store.look(name)
            found, missing = found + bool(ref), missing + (not ref)
            yield Record((name, row, ref), record.size + (ref.size if ref else 0), record.where)
        store.log_found("sounds")
        if missing and not found:
            raise store.lacking(f"{missing} sounds", name, "sounds")

    def sample(self, record: Record) -> Sample | Drop:
        name, row, ref = record.data
        if isinstance(ref, Absent):
            return Drop(ref.reason("sound"))
        data, where = ref.read(), record.where
        said, sources = transcribed(row, where), {**({LABELS: LABELS} if LABELS in row else {}), **self.fields}
        said |= fill(row, sources, where)
        used = {self.sound_field, "transcript", "text", "words", "meta", *sources, *columns_of(sources)}
        meta = {
            "source": where.rpartition(":")[0],
            "sound": name,
            "sha256": hashlib.sha256(data).hexdigest(),
            **{key: value for key, value in row.items() if key not in used},
        }
        return {**said, "key": record_key(name.rpartition(".")[0] or name), "sound": data, "meta": meta}


def transcribed(row: Mapping[str, Any], where: str) -> Sample:
    """`transcript` and `words` of a row, if it has them.

    Raises:
        MalformedError: of another form, or a word does not follow the previous one in the transcript.
    """
    words = [_word(word, where) for word in require(dict(row), "words", list, where)] if "words" in row else []
    named = next((name for name in ("transcript", "text") if name in row), None)
    text = " ".join(word for word, _ in words) if named is None else require(dict(row), named, str, where).strip()
    sample: Sample = {"transcript": text} if text else {}
    at, places = 0, []
    for word, time in words:
        start = text.find(word, at)
        if start < 0:
            raise MalformedError("a word is not in the transcript, behind the one before it", where, repr(word[:60]))
        at = start + len(word)
        places.append([start, at, *time])
    return {**sample, "words": places} if places else sample


def _word(found: Any, where: str) -> tuple[str, list[float]]:
    if isinstance(found, dict):
        found = [found.get("start"), found.get("end"), found.get("word")]
    if not isinstance(found, list) or len(found) != 3 or not isinstance(found[2], str) or not found[2].strip():
        raise MalformedError("a word must be {word, start, end} or [start, end, word]", where, str(found)[:60])
    return found[2].strip(), stretch(found[:2], where)

"""The folder that img2dataset writes (Beaumont 2021): tars of images, with captions and metadata as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.readers.image_text.images import ImageReader, image_sample
from pipelines.readers.image_text.url_list import WRITTEN
from pipelines.readers.reader import Drop, MalformedError, Match, Peek, Record, parse_row
from pipelines.sources.files import record_key
from pipelines.sources.image_store import ImageRef
from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import decoded
from workbench.corpora.shards.tars import records
from workbench.sequences.sequence import Sample

SHARD = re.compile(r"\d{5,}\.tar")
ENCODED = ("jpg", "png", "webp", "jpeg")
LISTED = {name: f"listed_{name}" for name in WRITTEN if name != "url"}
"""Columns that describe the fetched image itself; the JSON may have others for the listed one."""
UNSTATED_FIELDS = ("caption", "key", "status", "error_message")


@dataclass(frozen=True)
class Img2dataset(ImageReader):
    """A record of a tar becomes a record: its caption, and its JSON in `meta` (URL, similarity, sizes, ...).

    The tars are read in place. Other files of the folder (tables and counts of each shard) are not needed. For a corpus
    without a copy of the images, use `workbench index` on the same folder.
    """

    @classmethod
    def detect(cls, source: Peek) -> Match | bool:
        shards = [name for name in source.names if SHARD.fullmatch(name)]
        alongside = {f"{name[:-4]}{more}" for name in shards for more in ("_stats.json", ".parquet")}
        return not source.names.isdisjoint(alongside)

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        found = [tar for path in paths for tar in ([path] if path.is_file() else sorted(path.glob("*.tar")))]
        if not found:
            raise WorkbenchError(f"{', '.join(map(str, paths))} has no tar as img2dataset writes them: 00000.tar, ...")
        return found

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for tar in self.inputs(paths):
            for key, members in records(tar):
                refs = {member.name: ImageRef(str(tar), member.offset, member.size) for member in members}
                yield Record((key, refs), max(1, sum(ref.size for ref in refs.values())), f"{tar.name}:{key}")

    def sample(self, record: Record) -> Sample | Drop:
        key, refs = record.data
        image = next((refs[name] for name in ENCODED if name in refs), None)
        if image is None:
            return Drop("no image")
        row = parse_row(_text(refs["json"], record.where), record.where) if "json" in refs else {}
        caption = _text(refs["txt"], record.where) if "txt" in refs else row.get("caption")
        fields = {"captions": [caption] if isinstance(caption, str) else [], "key": record_key(key)}
        reported = {
            LISTED.get(n, n): value for n, value in row.items() if n not in UNSTATED_FIELDS and value is not None
        }
        return image_sample(f"{key}.jpg", image, {**fields, "meta": reported}, record.where)


def _text(ref: ImageRef, where: str) -> str:
    """A member of a tar as text, whatever its byte order mark says.

    Raises:
        MalformedError: it cannot be decoded.
    """
    try:
        return decoded(ref.read())
    except UnicodeError as error:
        raise MalformedError("a text that cannot be decoded", where, str(error)) from error

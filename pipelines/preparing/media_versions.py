"""Files that records name (images, films, sounds in folders): shards that were made of others are made again.

Inputs are known by their checksums; of the files that they name, which may be millions, a preparation that goes on
compares size and time of change, a digest for each shard. Tar files are inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import Chunk
from pipelines.sources.image_store import ImageRef
from workbench.files.drafts import explained

MEDIA = ".prepare.media"


class MediaVersions:
    """The digests by the number of the shard, as lines of a file in the folder; of two lines the later one counts."""

    def __init__(self, output: Path) -> None:
        self.path = output / MEDIA
        self._known: dict[int, str] = {}
        for line in self.path.read_text("ascii", "replace").split("\n")[:-1] if self.path.exists() else ():
            number, _, digest = line.partition(" ")
            if number.isdecimal():
                self._known[int(number)] = digest

    def changed(self, chunk: Chunk) -> bool:
        """Whether the files of a chunk are others than when this was asked last; what they are now is noted."""
        before, digest = self._known.get(chunk.number), _digest(chunk)
        if before == digest:
            return False
        self._known[chunk.number] = digest
        with explained(self.path), self.path.open("a", encoding="ascii") as file:
            file.write(f"{chunk.number} {digest}\n")
        return before is not None


def _digest(chunk: Chunk) -> str:
    """Of the files that a chunk's records name, and of which record names which."""
    total = hashlib.blake2b(digest_size=16)
    for place, record in enumerate(chunk.records):
        for ref in _refs(record.data):
            total.update(repr((place, *ref)).encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _refs(data: Any) -> Iterator[ImageRef]:
    if isinstance(data, ImageRef):
        yield data
        return
    inside: Iterable[Any] = data.values() if isinstance(data, dict) else data if isinstance(data, tuple | list) else ()
    for value in inside:
        yield from _refs(value)

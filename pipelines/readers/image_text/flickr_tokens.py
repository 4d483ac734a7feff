"""The token file of Flickr8k and Flickr30k: lines `image.jpg#0<tab>caption`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.reader import Malformed, MalformedError, Peek, parse_text
from pipelines.sources.files import files, lines

LINE = re.compile(r"(?P<image>[^\t#]+\.\w+)#(?P<number>\d+)\t(?P<caption>.*)")


@dataclass(frozen=True)
class FlickrTokens(ImageReader):
    """The captions of an image are gathered, in the order of the file."""

    suffixes: ClassVar[tuple[str, ...]] = (".txt", ".token", ".tsv")

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return bool(source.head) and LINE.fullmatch(source.head[0]) is not None

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[str, tuple[list[str], str]] = {}
        for path in files(paths, self.suffixes):
            for number, line in lines(path):
                where = f"{path.name}:{number}"
                with malformed:
                    text = parse_text(line, where)
                    match = LINE.fullmatch(text)
                    if match is not None:
                        gathered.setdefault(match["image"], ([], where))[0].append(match["caption"])
                    elif text.strip():
                        raise MalformedError("not of the form image.jpg#0<tab>caption", where, repr(text[:60]))
        for name, (captions, where) in gathered.items():
            yield name, {"captions": captions}, where

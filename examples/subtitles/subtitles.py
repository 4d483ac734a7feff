"""SubRip files (.srt): numbered cues with a time line each, separated by blank lines. A pause ends a scene."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Gt, Le

from pipelines.readers.reader import Drop, MalformedError, Peek, RawReader, Record
from pipelines.sources.files import files, lines, record_key, stem
from workbench.sequences.sequence import Sample

TIMES = re.compile(rb"\s*(\d+):(\d\d):(\d\d)[,.](\d{3}) --> (\d+):(\d\d):(\d\d)[,.](\d{3})")
MARKUP = re.compile(r"<[^>]*>|\{\\[^}]*\}")
Cue = tuple[int, list[bytes]]


@dataclass(frozen=True)
class Subtitles(RawReader):
    """Each scene is a text: successive cues with pauses of at most `pause` seconds."""

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = (".srt",)
    pause: Annotated[float, Gt(0), Le(3600)] = 5.0

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.suffix == ".srt"

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for path in files(paths, self.suffixes):
            scene: list[Cue] = []
            ended = 0.0
            for number, cue in _cues(path):
                begin, end = _times(cue) or (ended, ended)  # `sample` reports a bad time line
                if scene and begin - ended > self.pause:
                    yield _record(path, scene)
                    scene = []
                scene.append((number, cue))
                ended = end
            if scene:
                yield _record(path, scene)

    def sample(self, record: Record) -> Sample | Drop:
        name, scene = record.data
        source = record.where.rpartition(":")[0]
        said = " ".join(_said(cue, f"{source}:{number}") for number, cue in scene)
        text = " ".join(MARKUP.sub("", said).split())
        if not text:
            return Drop("silent scene")
        line = scene[0][0]
        return {"key": record_key(f"{name}-{line}"), "text": text, "meta": {"source": source, "line": line}}


def _cues(path: Path) -> Iterator[Cue]:
    """The line number of each cue, and its lines."""
    gathered: list[bytes] = []
    begin = number = 0
    for number, line in lines(path):
        if line.strip():
            begin = begin if gathered else number
            gathered.append(line)
        elif gathered:
            yield begin, gathered
            gathered = []
    if gathered:
        yield begin, gathered


def _times(cue: list[bytes]) -> tuple[float, float] | None:
    """The begin and the end of a cue, in seconds from the video's start."""
    found = TIMES.match(cue[1]) if len(cue) > 1 else None
    if found is None:
        return None
    values = [int(each) for each in found.groups()]
    begin, end = (3600 * h + 60 * m + s + t / 1000 for h, m, s, t in (values[:4], values[4:]))
    return begin, end


def _said(cue: list[bytes], where: str) -> str:
    if _times(cue) is None:
        raise MalformedError("a cue needs a number, and a time line as 00:01:02,000 --> 00:01:04,500", where)
    try:
        return " ".join(line.decode("utf-8").strip() for line in cue[2:])
    except UnicodeDecodeError as error:
        raise MalformedError("not valid UTF-8", where, str(error)) from error


def _record(path: Path, scene: list[Cue]) -> Record:
    size = sum(len(line) for _, cue in scene for line in cue)
    return Record((stem(path), scene), size, f"{path.name}:{scene[0][0]}")

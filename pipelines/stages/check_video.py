"""Films: the beginning of each is decoded once, so that what is no film never gets into a corpus."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.readers.reader import Drop
from workbench.errors import BadValueError
from workbench.options.bounds import Side
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class CheckVideo:
    """Drops what is no film, has no picture that can be decoded, or pictures with a shorter side below `min_side`."""

    min_side: Side = 1

    def __call__(self, sample: Sample) -> Sample | Drop:
        from vision.video.films import frames

        try:
            first = next(frames(sample["video"], 1.0, f"video {sample['key']!r}")).picture
        except BadValueError as error:
            return Drop(error.reason)
        return Drop("too small") if min(first.size) < self.min_side else sample

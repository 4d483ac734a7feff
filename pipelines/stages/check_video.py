"""Videos: the beginning of each is decoded once, so that what is no video never gets into a corpus."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.readers.reader import Drop
from pipelines.stages.cut_off import CUT_OFF, is_cut_off
from pipelines.stages.times import LATE, are_late
from workbench.core.errors import BadValueError
from workbench.core.options.bounds import Side
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class CheckVideo:
    """Drops what is no video, is cut off, has no image that can be decoded, or images with a side below `min_side`;
    and a record that has captions behind the end of its video. Of clips alone the end is that of the last one.
    """

    min_side: Side = 1

    def __call__(self, sample: Sample) -> Sample | Drop:
        from vision.video.videos import frames, length

        times = sample.get("caption_times", ())
        if "video" not in sample:
            return LATE if are_late(times, float(sample["clips"]["times"][-1, 1])) else sample
        video, where = sample["video"], f"video {sample['key']!r}"
        try:
            first = next(frames(video, 1.0, where)).image
            if is_cut_off(video):
                return CUT_OFF
            late = are_late(times, length(video, where))
        except BadValueError as error:
            return Drop(error.reason)
        if min(first.size) < self.min_side:
            return Drop("too small")
        return LATE if late else sample

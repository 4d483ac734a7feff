"""Captions or speech of a video with clips: [CLS] words [SEP] in `text`, the clips of their time in `video`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from vision.sequences.matching import WINDOW
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Count, Name, Word
from workbench.sequences.alignment import Partial
from workbench.sequences.builders.image_caption import ImageCaptionBuilder
from workbench.sequences.image_stream import ImageStream
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.text_layout import VisibilityAlone

LATE = "captions behind the end of the video"
_BY_CAPTION = ("captions", "caption_spans")
SLACK = 1.0  # seconds: a clip ends with its last frame, the video a little later
Run = Annotated[int, Ge(1), Le(1000)]


class VideoCaptionBuilder(ImageCaptionBuilder):
    """Speech or captions of a video with its clips: [CLS] words [SEP] in the text stream, the clips in `video`. A
    caption or a recognised sentence has the clips of its time (`caption_times`), or all clips.

    A sentence in whose time no clip begins or ends gets the clip that contains it, or the nearest. One that begins
    after the end of the video is dropped and counted.

    Args:
        video: the image processor of the video stream, with its options; null for the words alone (VideoBERT's
        text-only
            regime).
        captions: `each` caption is an item of the epoch, or `one` place in every video is drawn per epoch.
        pairs: with `one`: the number of successive captions, each a sequence; they belong to one video (the positive
        pairs of
            UniVL).
        joined: with `one`: the largest number of successive captions to join, drawn uniformly (VideoBERT, section 4.3).
        words: false removes the words, except the special tokens (VideoBERT's video-only regime).
        stream: the name of the clips' stream.
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        control: the recipe's; `question-only` removes the clips, `shuffled-captions` replaces every segment's caption
        by one of
            another video.
        visibility: which tokens of the text each one sees: all (`bidirectional`), those up to itself (`causal`), or
            itself and those after it (`anticausal`).
        target: as of `image_caption`.
    """

    medium = "video"
    caption_builder = "vision.video_caption"

    def __init__(
        self,
        tokenizer: Any,
        max_length: Count,
        video: ComponentSpec | ComponentName | None,
        captions: Literal["each", "one"] = "each",
        pairs: Run = 1,
        joined: Run = 1,
        words: bool = True,
        stream: Word = "video",
        partial: Partial = "cover",
        control: Name | None = None,
        visibility: VisibilityAlone = "bidirectional",
        target: Word | None = None,
    ) -> None:
        if captions == "each" and (pairs, joined) != (1, 1):
            raise WorkbenchError(f"pairs = {pairs}, joined = {joined} need `captions: one`; found {captions!r}")
        options: dict[str, Any] = {"partial": partial, "control": control, "visibility": visibility, "target": target}
        super().__init__(tokenizer, max_length, None, captions, **options)
        self.image = ImageStream(video, control, stream=stream)
        self.run_length, self.joined, self.words = pairs, joined, words

    def evaluating(self) -> VideoCaptionBuilder:
        """Every caption of every video, its own under any control."""
        other = super().evaluating()
        assert isinstance(other, VideoCaptionBuilder)
        other.run_length = other.joined = 1
        return other

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """Each video as its segments, so that objectives exchange these."""
        samples = super().arrange(samples, draws)
        return [part for sample in samples for part in self._segments(sample, draws.of(tuple(sample["draw"])))]

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        whole = [[s] if WINDOW in s else self._segments(s, draws.of(tuple(s.get("draw", ())))) for s in samples]
        parts = [part for segments in whole for part in segments]
        return super().__call__(parts, draws)

    def media(self, sample: Sample) -> list[Sample]:
        """The segments of a sample: captions with the same clips share one. A caption that begins after the end is
        dropped and counted."""
        captions, times = sample.get("captions") or [], sample.get("caption_times") or []
        if not (times and "clips" in sample):
            return [{**sample, WINDOW: None}]
        of_clips: dict[tuple[int, ...], list[int]] = {}
        for number in range(len(captions)):
            if self._is_late(sample, number):
                self.dropped[LATE] += 1
            else:
                rows = within(sample["clips"]["times"], *times[number])
                of_clips.setdefault(tuple(rows.tolist()), []).append(number)
        return [self._medium(sample, numbers, place) for place, numbers in enumerate(of_clips.values())]

    def _medium(self, sample: Sample, numbers: list[int], place: int) -> Sample:
        """The segment of these captions, with its own key."""
        part = self._segment(sample, sample["captions"], numbers[0], numbers[0] + 1)
        start, end = part[WINDOW]
        own = {name: [sample[name][number] for number in numbers] for name in _BY_CAPTION if name in sample}
        named = {"key": f"{sample['key']}@{start:g}-{end:g}", "draw": (*tuple(sample.get("draw", ())), place)}
        return {**part, **own, **named}

    def _segments(self, sample: Sample, rng: np.random.Generator) -> list[Sample]:
        captions = sample.get("captions") or ([] if self.words else [""])
        if not captions:
            raise missing(sample, "captions")
        chosen = range(len(captions))
        if self.captions == "one":
            first = int(rng.integers(max(1, len(captions) - self.run_length + 1)))
            chosen = range(first, min(len(captions), first + self.run_length))
        segments = []
        for number in chosen:
            more = int(rng.integers(self.joined)) if self.joined > 1 else 0
            if self._is_late(sample, number):
                self.dropped[LATE] += 1
            else:
                segments.append(self._segment(sample, captions, number, min(len(captions), number + 1 + more)))
        if len(segments) > 1:
            draw = tuple(sample.get("draw", ()))
            return [{**segment, "draw": (*draw, number)} for number, segment in enumerate(segments)]
        return segments

    def _is_late(self, sample: Sample, number: int) -> bool:
        """Whether a caption begins after the last clip."""
        times: list[list[float]] = sample.get("caption_times") or []
        ends = sample["clips"]["times"][:, 1] if times and "clips" in sample else np.zeros(0)
        return bool(len(ends)) and times[number][0] > ends.max() + SLACK

    def _segment(self, sample: Sample, captions: list[str], first: int, end: int) -> Sample:
        """A sample of the captions [first, end) as one, with the clips of their time."""
        apart = ("captions", "caption_times", "caption_spans")
        part = {name: value for name, value in sample.items() if name not in apart}
        part["captions"] = [" ".join(captions[first:end]) if self.words else ""]
        if "caption_spans" in sample and end == first + 1 and self.words:
            part["caption_spans"] = sample["caption_spans"][first:end]
        times = sample.get("caption_times")
        part[WINDOW] = [times[first][0], times[end - 1][1]] if times else None
        if times and "clips" in sample:
            rows = within(sample["clips"]["times"], *part[WINDOW])
            part["clips"] = {name: values[rows] for name, values in sample["clips"].items()}
        return part


def within(times: np.ndarray, start: float, end: float) -> np.ndarray:
    """The numbers of the intervals [n, 2] that overlap [start, end); the nearest one if none does."""
    rows = np.flatnonzero((times[:, 1] > start) & (times[:, 0] < end))
    if len(rows) or not len(times):
        return rows
    return np.asarray([np.abs(times.mean(1) - (start + end) / 2).argmin()])

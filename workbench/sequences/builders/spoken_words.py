"""Speech, word by word: [CLS] [SEP] in `text`, the sound of each word in `speech` (SpeechBERT, arXiv:1910.11559)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from workbench.core.errors import BadValueError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Word
from workbench.sequences.builder import Builder, sequence_of
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Fields, Sample, Sequence, text_fields
from workbench.text.tokenizer import Tokenizer

MaxFrames = Annotated[int, Ge(1), Le(10_000)]
CUT, UNKNOWN, LATE = "frames of long words", "words without a token", "words behind the end of the sound"
BEYOND = "words beyond max_length"
EDGE = 3  # frames: the last windows of a sound begin before its end by the length of one


class SpokenWordsBuilder(Builder):
    """Speech, word by word: [CLS] [SEP] in `text`, the sound of each word in `speech` (SpeechBERT, arXiv:1910.11559).
    Each word of a transcript is a row with its frames.

    Fields of the stream: those of a text (`input_ids`: the first token of each word); `said_ids`, the same, which no
    objective changes: where the two differ the sound is masked; `features` [rows, max_frames, bands], zeros behind the
    end of a word, and `frames`, their number. Positions are those between [CLS] and [SEP].

    Args:
        max_length: words of a sequence, with the two special tokens.
        max_frames: frames of a word; further ones are cut off, and counted.
        stream: the name of the stream of words.
        split: speech of more words becomes several sequences; otherwise the words beyond are cut off, and counted.
    """

    reads = ("transcript", "words", "frames")

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        max_frames: MaxFrames = 100,
        stream: Word = "speech",
        split: bool = True,
    ) -> None:
        super().__init__(tokenizer, max_length)
        self.max_frames, self.stream, self.split = max_frames, stream, split

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        return [sequence for sample in samples for sequence in self._sequences(sample)]

    def _sequences(self, sample: Sample) -> list[Sequence]:
        for name in self.reads:
            if name not in sample:
                raise missing(sample, name)
        words = sample["words"]
        encoded = self.tokenizer.encode_batch([sample["transcript"][start:end] for start, end, *_ in words])
        heard = [(int(said.ids[0]), *time) for said, (_, _, *time) in zip(encoded, words, strict=True) if len(said)]
        if len(heard) < len(words):
            self.dropped[UNKNOWN] += len(words) - len(heard)
        heard = self._within(heard, sample)
        if not self.split and len(heard) > self.capacity:
            self.dropped[BEYOND] += len(heard) - self.capacity
            heard = heard[: self.capacity]
        sequences = []
        for part, start in enumerate(range(0, max(1, len(heard)), self.capacity)):
            chosen = heard[start : start + self.capacity]
            text, _ = self.frame.lay([self.tokenizer.encode("")])
            text["position_ids"][len(self.frame.begin) :] += len(chosen)
            streams = {"text": text, self.stream: self._words(chosen, sample)}
            sequences.append(sequence_of(sample, streams, part, []))
        return sequences

    def _within(self, heard: list[tuple[int, float, float]], sample: Sample) -> list[tuple[int, float, float]]:
        """The words that begin before the sound ends."""
        found, step = _frames(sample)
        kept = [word for word in heard if word[1] / step < len(found) + EDGE]
        if len(kept) < len(heard):
            self.dropped[LATE] += len(heard) - len(kept)
        return kept

    def _words(self, heard: list[tuple[int, float, float]], sample: Sample) -> Fields:
        """The stream of words: their tokens and their times."""
        found, step = _frames(sample)
        ids = np.asarray([token for token, *_ in heard], np.int64)
        features = np.zeros((len(heard), self.max_frames, found.shape[1]), found.dtype)
        lengths = np.ones(len(heard), np.int64)
        for row, (_, start, end) in enumerate(heard):
            first = min(int(start / step), max(0, len(found) - 1))
            cut = found[first : max(first + 1, round(end / step))]
            if len(cut) > self.max_frames:
                self.dropped[CUT] += len(cut) - self.max_frames
            cut = cut[: self.max_frames]
            features[row, : len(cut)], lengths[row] = cut, max(1, len(cut))
        fields = text_fields(ids)
        fields["position_ids"] += len(self.frame.begin)
        return {**fields, "said_ids": ids.copy(), "features": features, "frames": lengths}


def _frames(sample: Sample) -> tuple[np.ndarray, float]:
    """The spectra [n, d] and the seconds between two.

    Raises:
        BadValueError: it has none.
    """
    found, step = sample["frames"].get("features"), float(sample["frames"].get("step", 0))
    if found is None or np.ndim(found) != 2 or step <= 0:
        where = f"sample {sample.get('key', '?')!r}"
        raise BadValueError(where, "frames need features [n, d] and a step of seconds", sample, "unusable frames")
    return found, step

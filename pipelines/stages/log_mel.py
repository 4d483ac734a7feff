"""The stage that computes log-mel spectra of speech.

    frames[t, m] = log(max(sum_k w[m, k] |STFT(sound)[t, k]|^2, 1e-10))

w are triangles, evenly placed on the mel scale 2595 log10(1 + f / 700) from 0 Hz to half the rate (HTK's); windows are
those of Hann, 25 ms long, every 10 ms.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le

from pipelines.readers.reader import Drop
from pipelines.stages.stored_features import FeatureType, stored
from pipelines.stages.truncation import CUT_OFF, LATE, are_late, is_cut_off
from workbench.core.options.bounds import Positive
from workbench.core.packages import library
from workbench.sequences.sequence import Sample

Mels = Annotated[int, Ge(1), Le(1024)]
RATES = (1000, 384_000)
Rate = Annotated[int, Ge(RATES[0]), Le(RATES[1])]
FINEST = (
    10_000  # largest denominator of a ratio of rates: the filter of an odd one (16,000 to 383,987) takes half a minute
)
FLOOR = 1e-10
BLOCK = 4096  # frames that are transformed at once


@dataclass(frozen=True)
class LogMel:
    """Adds `frames` (features [n, mels], step) and `meta.frames`, and removes the sound.

    A sound of another `rate` is resampled, several channels are averaged. `scaled` normalises every band of a record to
    mean 0 and deviation 1. Dropped are sounds that cannot be read, are cut off, have a rate outside of `RATES`, or are
    shorter than a window or longer than `longest` seconds; and records with words after the end of the sound.
    """

    mels: Mels = 80
    rate: Rate = 16_000
    scaled: bool = True
    longest: Positive = 3600.0
    keep: bool = False
    dtype: FeatureType = "float16"

    @property
    def identity(self) -> str:
        """The identity of the spectra, stored with every record."""
        return f"log-mel:{self.mels}:{self.rate}Hz:25ms/10ms{':scaled' if self.scaled else ''}"

    def __call__(self, sample: Sample) -> Sample | Drop:
        samples = self.samples(sample["sound"])
        if isinstance(samples, Drop):
            return samples
        window, hop = self.rate // 40, self.rate // 100
        if len(samples) < window:
            return Drop("too short")
        if are_late([time for _, _, *time in sample.get("words", ())], len(samples) / self.rate):
            return LATE
        features = log_mel(samples, self.rate, self.mels, window, hop)
        if self.scaled:
            features = (features - features.mean(0)) / np.maximum(features.std(0), 1e-5)
        frames = {
            "features": stored(features, self.dtype, f"sound {sample['key']!r}", "its spectrum"),
            "step": np.asarray(hop / self.rate, np.float32),
        }
        kept = {name: value for name, value in sample.items() if name != "sound" or self.keep}
        return {**kept, "frames": frames, "meta": {**sample.get("meta", {}), "frames": self.identity}}

    def samples(self, sound: bytes) -> np.ndarray | Drop:
        """The samples of an encoded sound, at `rate`, one channel [n] float64."""
        files: Any = library("soundfile", "speech", "sounds")
        try:
            with files.SoundFile(io.BytesIO(sound)) as file:
                stated, rate = file.frames, file.samplerate
                if not RATES[0] <= rate <= RATES[1]:
                    return Drop("damaged sound")
                if stated > self.longest * rate:
                    return Drop("too long")
                found = file.read(dtype="float64", always_2d=True).mean(1)
            if len(found) < stated or is_cut_off(sound):
                return CUT_OFF
        except (files.SoundFileError, RuntimeError, ValueError, TypeError):
            return Drop("damaged sound")
        if not np.isfinite(found).all():
            return Drop("damaged sound")
        if rate == self.rate or not len(found):
            return found
        from scipy import signal  # takes a second

        ratio = Fraction(self.rate, rate).limit_denominator(FINEST)
        resampled: np.ndarray = signal.resample_poly(found, ratio.numerator, ratio.denominator)
        return resampled


def log_mel(samples: np.ndarray, rate: int, mels: int, window: int, hop: int) -> np.ndarray:
    """Samples [n] -> log-mel spectra [1 + (n - window) // hop, mels]."""
    size, shape = 1 << (window - 1).bit_length(), np.hanning(window + 1)[:-1]
    cut = np.lib.stride_tricks.sliding_window_view(samples, window)[::hop]
    parts = []
    for start in range(0, len(cut), BLOCK):
        power = np.abs(np.fft.rfft(cut[start : start + BLOCK] * shape, size)) ** 2
        parts.append(np.log(np.maximum(power @ bands(rate, mels, size).T, FLOOR)))
    return np.concatenate(parts)


@lru_cache(maxsize=8)
def bands(rate: int, mels: int, size: int) -> np.ndarray:
    """Triangular weights of mel bands over the frequencies of a transform of `size` samples [mels, size / 2 + 1]."""
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, mels + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(size, 1 / rate)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    triangles: np.ndarray = np.maximum(0, np.minimum(rising, falling))
    return triangles

"""Log-mel spectra of speech."""

from __future__ import annotations

import io

import numpy as np
import pytest

from pipelines.readers.reader import Drop
from pipelines.stages.log_mel import LogMel, log_mel
from tests.videos import tone
from workbench.core.errors import WorkbenchError

soundfile = pytest.importorskip("soundfile")


def stated(rate: int) -> bytes:
    """A sound whose header says another rate than it has."""
    sound = bytearray(tone())
    sound[24:28] = rate.to_bytes(4, "little")
    return bytes(sound)


def test_as_transformers_has_it() -> None:
    audio = pytest.importorskip("transformers.audio_utils")
    samples = np.random.default_rng(0).normal(size=5000)
    bands = audio.mel_filter_bank(257, 40, 0.0, 8000.0, 16_000, norm=None, mel_scale="htk")
    window = audio.window_function(400, "hann", frame_length=400)
    wanted = audio.spectrogram(
        samples, window, 400, 160, fft_length=512, center=False, power=2.0, mel_filters=bands, log_mel="log"
    )
    np.testing.assert_allclose(log_mel(samples, 16_000, 40, 400, 160), wanted.T, atol=1e-5)


def test_the_loudest_band_is_that_of_the_tone() -> None:
    made = LogMel(mels=40, scaled=False, dtype="float32")({"key": "a", "sound": tone(1000.0)})
    features = made["frames"]["features"]
    assert features.shape == (1 + (8000 - 400) // 160, 40)
    assert made["frames"]["step"] == np.float32(0.01)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 42) / 2595) - 1)
    assert set(features.argmax(1)) == {int(np.abs(edges[1:-1] - 1000).argmin())}
    assert "sound" not in made
    other = LogMel(mels=40, scaled=False, dtype="float32")({"key": "a", "sound": tone(1000.0, rate=44_100)})
    assert set(other["frames"]["features"][2:-2].argmax(1)) == set(features.argmax(1)), "resampled"
    odd = LogMel(mels=40, scaled=False, dtype="float32")({"key": "a", "sound": tone(1000.0, rate=383_987)})
    assert len(odd["frames"]["features"]) == len(features)
    assert set(odd["frames"]["features"][2:-2].argmax(1)) == set(features.argmax(1)), "of a ratio that is no round one"


def test_scaled_bands_have_mean_zero_and_deviation_one() -> None:
    noise = np.random.default_rng(0).normal(size=(16_000, 2)) / 10
    file = io.BytesIO()
    soundfile.write(file, noise, 16_000, format="FLAC")
    made = LogMel()({"key": "a", "sound": file.getvalue()})
    features = made["frames"]["features"].astype(np.float64)
    assert made["frames"]["features"].dtype == np.float16
    np.testing.assert_allclose(features.mean(0), 0, atol=2e-3)
    np.testing.assert_allclose(features.std(0), 1, atol=2e-3)


@pytest.mark.parametrize(
    ("sound", "reason"),
    [
        (tone(seconds=0.01), "too short"),
        (tone(seconds=2), "too long"),
        (tone()[:30], "damaged sound"),
        (tone()[: len(tone()) // 2], "cut off"),
        (tone(seconds=0.4, rate=1_000_003), "damaged sound"),
        (tone(seconds=0.1, rate=999), "damaged sound"),
        (stated(2_147_483_647), "damaged sound"),
        (b"<html>", "damaged sound"),
        (b"", "damaged sound"),
    ],
)
def test_what_cannot_be_used_is_dropped(sound: bytes, reason: str) -> None:
    assert LogMel(longest=1.0)({"key": "a", "sound": sound}) == Drop(reason)


@pytest.mark.parametrize(
    ("words", "late"),
    [
        ([[0, 1, 0.0, 0.3], [2, 3, 0.4, 0.5]], False),
        ([[0, 1, 0.0, 0.3], [2, 3, 0.4, 0.6]], False),
        ([[0, 1, 0, 300], [2, 3, 400, 500]], True),
        ([[0, 1, 0, 300]], True),
        ([[0, 1, 0.6, 0.7]], True),
        ([], False),
    ],
)
def test_words_behind_the_end_are_of_another_sound_or_unit(words: list[list[float]], late: bool) -> None:
    made = LogMel()({"key": "a", "sound": tone(seconds=0.5), "words": words})
    assert (made == Drop("times behind the end")) is late


def test_a_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(WorkbenchError, match=r"pip install 'pretraining-workbench\[speech\]'"):
        LogMel()({"key": "a", "sound": tone()})

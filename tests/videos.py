"""Videos and sounds for tests, made here: squares that brighten, tones."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
from PIL import Image

from vision.video.videos import open_video


def frame(brightness: int, size: tuple[int, int] = (24, 16), format: str = "PNG") -> bytes:
    """An encoded photograph of one grey."""
    file = io.BytesIO()
    Image.new("RGB", size, (brightness,) * 3).save(file, format)
    return file.getvalue()


def video(seed: int = 0, frames: int = 12, rate: float = 4.0) -> bytes:
    """A video (avi) whose frames brighten."""
    return open_video([frame((seed * 37 + 10 * number) % 256) for number in range(frames)], rate, "a video")


def tone(hertz: float = 440.0, seconds: float = 0.5, rate: int = 16_000) -> bytes:
    """A sound (wav, 16 bits, one channel)."""
    samples = np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes((samples * 20_000).astype("<i2").tobytes())
    return file.getvalue()


def write_media(folder: Path, count: int) -> None:
    """Videos 0.avi, ... in videos/ and sounds 0.wav, ... in sounds/."""
    for name in ("videos", "sounds"):
        (folder / name).mkdir()
    for number in range(count):
        (folder / "videos" / f"{number}.avi").write_bytes(video(number))
        (folder / "sounds" / f"{number}.wav").write_bytes(tone(200 + 40 * number))

"""Captions read aloud by eSpeak NG, where there is no real speech: synthetic voices, and when each word is said.

The library says at which sample a word begins, so that nothing has to be aligned. It is called as it is
(`apt-get install espeak-ng`), in several voices.
"""

from __future__ import annotations

import ctypes
import json
import re
from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_int, c_short, c_size_t, c_uint, c_void_p
from functools import cache
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile

LIBRARY = "libespeak-ng.so.1"
VOICES = ("en-us", "en-us+f3", "en", "en+f2", "en-gb-scotland+m3", "en-029+f4")
DOGS = {"dog", "dogs", "puppy"}
SYNCHRONOUS, BY_CHARACTER, UTF8 = 2, 1, 1
LIST_TERMINATED, WORD, END = 0, 1, 5
_WORD = re.compile(r"\S*\w")


class Said(NamedTuple):
    """A sound [samples] int16, so many a second, and where words begin and end in it: `(sample, character)`, in the
    order of time; the character is -1 where a part of a sentence ends."""

    sound: np.ndarray
    rate: int
    marks: list[tuple[int, int]]


class Event(Structure):
    """`espeak_EVENT` of speak_lib.h."""

    _fields_ = (
        ("type", c_int),
        ("unique_identifier", c_uint),
        ("text_position", c_int),
        ("length", c_int),
        ("audio_position", c_int),
        ("sample", c_int),
        ("user_data", c_void_p),
        ("id", c_char * 8),
    )


def write_spoken(captions: Path, output: Path) -> None:
    """The first caption of every image (JSON lines with `captions`) as a sound (FLAC), and its words with their times
    as JSON lines; the sounds lie in the folder of the same name without the suffix. Labels: the voice, and whether
    a dog is spoken of."""
    folder, rows = output.with_suffix(""), []
    folder.mkdir(exist_ok=True)
    for number, line in enumerate(captions.read_text().splitlines()):
        caption = " ".join(json.loads(line)["captions"][0].split())
        voice = VOICES[number % len(VOICES)]
        said = speak(caption, voice)
        labels = {"voice": voice, "dog": "yes" if DOGS & set(caption.lower().split()) else "no"}
        soundfile.write(folder / f"{number:04d}.flac", said.sound, said.rate)
        rows.append(
            {"sound": f"{number:04d}.flac", "transcript": caption, "words": words(caption, said), "labels": labels}
        )
    output.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def words(text: str, said: Said) -> list[dict[str, Any]]:
    """The words of a text with their seconds: each lasts until the next mark, one of several parts until the last's."""
    found: list[dict[str, Any]] = []
    reached = 0
    for (begin, character), (end, _) in zip(said.marks, said.marks[1:], strict=False):
        word = _WORD.match(text, character) if character >= reached else None
        if word:
            found.append({"word": word[0], "start": begin / said.rate, "end": end / said.rate})
            reached = word.end()
        elif found and 0 <= character < reached:
            found[-1]["end"] = end / said.rate
    return [word for word in found if word["start"] < word["end"]]


def speak(text: str, voice: str) -> Said:
    """A text as sound.

    Raises:
        OSError: the library is not installed.
        ValueError: it has no such voice.
    """
    library, rate = _library()
    pieces: list[bytes] = []
    marks: list[tuple[int, int]] = []

    def heard(samples: Any, number: int, events: Any) -> int:
        if samples and number:
            pieces.append(ctypes.string_at(samples, number * 2))
        for event in takewhile(lambda event: event.type != LIST_TERMINATED, map(events.__getitem__, count())):
            if event.type == END or (event.type == WORD and event.length):
                marks.append((event.sample, event.text_position - 1 if event.type == WORD else -1))
        return 0

    callback = _CALLBACK(heard)
    library.espeak_SetSynthCallback(callback)
    if library.espeak_SetVoiceByName(voice.encode()):
        raise ValueError(f"eSpeak NG has no voice {voice!r}")
    raw = text.encode()
    library.espeak_Synth(raw, c_size_t(len(raw) + 1), c_uint(0), BY_CHARACTER, c_uint(0), c_uint(UTF8), None, None)
    return Said(np.frombuffer(b"".join(pieces), "<i2"), rate, marks)


_CALLBACK = CFUNCTYPE(c_int, POINTER(c_short), c_int, POINTER(Event))


@cache
def _library() -> tuple[ctypes.CDLL, int]:
    """The library, ready to give sounds back, and its samples a second."""
    library = ctypes.CDLL(LIBRARY)
    return library, library.espeak_Initialize(SYNCHRONOUS, 0, None, 0)

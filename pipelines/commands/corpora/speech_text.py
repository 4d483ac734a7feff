"""`prepare speech-text`: speech with transcripts -> a speech-text corpus of log-mel spectra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pipelines.commands.options import CleaningOptions, ShardSize
from pipelines.stages.log_mel import LogMel, Mels, Rate
from pipelines.stages.stored_features import FeatureType
from pipelines.stages.text_cleaning import NormaliseText
from workbench.core.options.bounds import Location, Positive
from workbench.core.packages import library


@dataclass(frozen=True, kw_only=True)
class SpeechCleaning(CleaningOptions):
    """Default number of records per shard: spectra are larger than texts."""

    shard_size: ShardSize = 1_000


def speech_text(
    options: SpeechCleaning,
    sounds: Annotated[
        list[Location], typer.Option(help="Folder or plain tar of the sounds; default: sounds* next to the input.")
    ] = [],  # noqa: B006  (typer wants a list)
    mels: Annotated[Mels, typer.Option(help="Bands of the mel scale.")] = 80,
    rate: Annotated[Rate, typer.Option(help="Samples a second; sounds of other rates are resampled.")] = 16_000,
    scaled: Annotated[bool, typer.Option(help="Normalise every band to mean 0 and deviation 1 in each record.")] = True,
    longest: Annotated[Positive, typer.Option(help="Sounds of more seconds are dropped.")] = 3600.0,
    keep: Annotated[bool, typer.Option("--keep-sound", help="Keep the sounds next to the spectra.")] = False,
    dtype: Annotated[FeatureType, typer.Option(help="Stored numbers: float16 or float32.")] = "float16",
) -> None:
    """Convert speech (wav, flac, ogg, mp3) with transcripts and times of words (JSON lines) into log-mel spectra.

    The corpus has a spectrum every 10 ms. Unreadable sounds are dropped and counted. Held-out splits are drawn by the
    sound's content.

    Examples:

      workbench prepare speech-text spoken.jsonl --sounds sounds/ --output corpora/speech --split held-out=0.1

      workbench prepare speech-text spoken.jsonl --sounds sounds.tar --mels 40 --output corpora/speech
    """
    library("soundfile", "speech", "sounds")
    stage = LogMel(mels, rate, scaled, longest, keep, dtype)
    options.read("speech-text", [NormaliseText(), stage], sounds=sounds)

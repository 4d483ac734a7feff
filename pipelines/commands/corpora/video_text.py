"""`prepare video-text`: videos with captions or recognised speech -> a video-text corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pipelines.commands.options import CleaningOptions, ShardSize
from pipelines.stages.media_checks import CheckVideo
from pipelines.stages.text_cleaning import NormaliseText
from workbench.core.options.bounds import Location, Side
from workbench.core.packages import library


@dataclass(frozen=True, kw_only=True)
class VideoCleaning(CleaningOptions):
    """Default number of records per shard: videos are larger than images."""

    shard_size: ShardSize = 100


def video_text(
    options: VideoCleaning,
    videos: Annotated[
        list[Location], typer.Option(help="Folder or plain tar of the videos; default: videos* next to the input.")
    ] = [],  # noqa: B006  (typer wants a list)
    min_side: Annotated[Side, typer.Option(help="Videos whose frames have a shorter side are dropped.")] = 1,
) -> None:
    """Convert videos (or folders of their frames) with captions or recognised speech into a video-text corpus.

    The captions are JSON lines. Videos (mp4, webm, mkv, avi) are stored as they are. A folder of frames becomes a video
    with the encoded frames. The beginning of every video is decoded; files that are no videos are dropped and counted.
    Held-out splits are drawn by the video's content.

    Examples:

      workbench prepare video-text captions.jsonl --videos videos/ --output corpora/videos --split held-out=0.1

      workbench prepare video-text frames.jsonl --videos frames/ -o corpora/videos --option frame_rate=10
    """
    library("av", "video", "videos")
    options.read("video-text", [NormaliseText(), CheckVideo(min_side)], videos=videos)

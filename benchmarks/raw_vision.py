"""What no raw data at hand has and vision-language systems read, videos and speech: made from photos and captions."""

from __future__ import annotations

from pathlib import Path

from benchmarks.photo_videos import write_videos
from benchmarks.raw_files import RawFiles
from benchmarks.spoken_captions import write_spoken


class RawVision(RawFiles):
    """Of each part of flickr8k, `train` and `dev`."""

    def videos(self, part: str) -> Path:
        """Videos of photos, in the folder of the name without its suffix."""
        captions, images = self._captions(part), self.data / f"flickr8k/images_{part}.tar"
        return self._written(f"videos-{part}.jsonl", lambda path: write_videos(captions, images, path))

    def spoken(self, part: str) -> Path:
        """Captions read aloud by a synthesiser, in the folder of the name without its suffix."""
        return self._written(f"spoken-{part}.jsonl", lambda path: write_spoken(self._captions(part), path))

    def _captions(self, part: str) -> Path:
        return self.data / f"flickr8k/captions_{part}.jsonl"

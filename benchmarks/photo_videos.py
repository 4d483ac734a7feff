"""Videos built from photos, where there are no real ones: scenes of a photo each, with one of its captions as
narration.

In a scene of three seconds a crop moves over the photo and becomes narrower or wider; scenes follow each other in any
order. So such videos say what there is to be seen, and which words belong to which moment; there is no action in them.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from PIL import Image

from vision.video.videos import open_video

SCENES, SECONDS, RATE, SIDE = 4, 3.0, 2, 128
"""Photos a video; how long each is seen, in so many frames a second, of so many pixels a side."""
NARROWEST = 0.7
"""The share of a photo's sides that a crop has at least."""


def write_videos(captions: Path, images: Path, output: Path) -> None:
    """Videos of photos in a tar, and their captions and times as JSON lines: each photo is in one video, but for those
    that are left over.

    Args:
        captions: JSON lines `{image, captions}`.
        images: tar of the photos.
        output: file of the rows; the videos lie in the folder of the same name without the suffix.
    """
    rng, rows = Random(0), [*map(json.loads, captions.read_text().splitlines())]
    rng.shuffle(rows)
    folder = output.with_suffix("")
    folder.mkdir(exist_ok=True)
    listed = []
    with tarfile.open(images) as photos:
        for number in range(len(rows) // SCENES):
            chosen = rows[number * SCENES : (number + 1) * SCENES]
            photographs = [photograph for row in chosen for photograph in scene(_photo(photos, row["image"]), rng)]
            (folder / f"{number:04d}.avi").write_bytes(open_video(photographs, RATE, "photos"))
            seen = {"video": f"{number:04d}.avi", "photos": [row["image"] for row in chosen]}
            listed.append({**seen, **narrated(chosen, rng)})
    output.write_text("".join(f"{json.dumps(row)}\n" for row in listed))


def narrated(rows: Sequence[dict[str, list[str]]], rng: Random) -> dict[str, list[object]]:
    """One of the captions of each photo, and when its scene is seen."""
    times = [[place * SECONDS, (place + 1) * SECONDS] for place in range(len(rows))]
    return {"captions": [rng.choice(row["captions"]) for row in rows], "times": [*times]}


def scene(photo: Image.Image, rng: Random) -> Iterator[bytes]:
    """Frames (JPEG) of a crop that goes evenly from one place and size to another."""
    begin, end = _crop(photo, rng), _crop(photo, rng)
    frames = round(SECONDS * RATE)
    for number in range(frames):
        part = number / (frames - 1)
        left, upper, right, lower = ((1 - part) * first + part * last for first, last in zip(begin, end, strict=True))
        frame = photo.resize((SIDE, SIDE), Image.Resampling.BILINEAR, (left, upper, right, lower))
        file = io.BytesIO()
        frame.save(file, "JPEG", quality=85)
        yield file.getvalue()


def _crop(photo: Image.Image, rng: Random) -> tuple[float, ...]:
    """Left, upper, right, lower, in pixels."""
    share, (width, height) = rng.uniform(NARROWEST, 1), photo.size
    left, upper = (rng.uniform(0, (1 - share) * side) for side in photo.size)
    return left, upper, left + share * width, upper + share * height


def _photo(photos: tarfile.TarFile, name: str) -> Image.Image:
    file = photos.extractfile(name)
    assert file is not None, name
    return Image.open(file).convert("RGB")

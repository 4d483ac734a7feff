"""Pictures as they come: what is dropped is counted by reason, what is kept is read upright, in eight bits."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from tests.pipelines.test_commands import prepare
from vision.images.decoding import decode
from workbench.corpora.corpus import Corpus

RED, GREEN = (220, 20, 20), (20, 160, 20)


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def halves(size: tuple[int, int] = (40, 20)) -> Image.Image:
    """Red on the left, green on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(GREEN, (size[0] // 2, 0, *size))
    return image


def turned() -> bytes:
    """Lies on its side; EXIF says how it is to be turned."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(halves().transpose(Image.Transpose.ROTATE_90), "JPEG", exif=exif, quality=95)


def sixteen() -> bytes:
    grey = np.full((20, 40), 150 << 8, np.uint16)
    return encoded(Image.fromarray(grey), "PNG")


def bomb() -> bytes:
    """A few hundred bytes that say they are 30,000 x 30,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def animated() -> bytes:
    return encoded(halves(), "GIF", save_all=True, append_images=[Image.new("RGB", (40, 20), GREEN)], duration=100)


KEPT: dict[str, Callable[[], bytes]] = {
    "named.png": lambda: encoded(halves(), "JPEG", quality=95),
    "cmyk.jpg": lambda: encoded(halves().convert("CMYK"), "JPEG", quality=95),
    "turned.jpg": turned,
    "animated.gif": animated,
    "sixteen.png": sixteen,
}
DROPPED: dict[str, tuple[Callable[[], bytes] | None, str]] = {
    "missing.jpg": (None, "{reader}: image not found"),
    "empty.jpg": (lambda: b"", "CheckImage: empty image file"),
    "page.jpg": (lambda: b"<!DOCTYPE html><html></html>", "CheckImage: a web page, not an image"),
    "text.jpg": (lambda: b"not an image at all", "CheckImage: not an image"),
    "cut.jpg": (lambda: encoded(halves((400, 200)), "JPEG")[:1500], "CheckImage: damaged image"),
    "bomb.png": (bomb, "CheckImage: too many pixels"),
    "tiny.png": (lambda: encoded(halves((6, 3)), "PNG"), "CheckImage: too small"),
    "wordless.jpg": (lambda: encoded(halves(), "JPEG"), "clean_captions: no caption"),
}


@pytest.fixture
def corpus(tmp_path, json_lines) -> Corpus:
    (tmp_path / "images").mkdir()
    made = {**KEPT, **{name: make for name, (make, _) in DROPPED.items() if make is not None}}
    for name, make in made.items():
        (tmp_path / "images" / name).write_bytes(make())
    names = [*KEPT, *DROPPED]
    rows = [{"image": name, "captions": ["", " "] if name == "wordless.jpg" else ["a caption", " "]} for name in names]
    path = json_lines("captions.jsonl", rows)
    prepare("image-text", path, "-o", tmp_path / "out", "--min-side", 4, "--workers", 1, "--log-dropped")
    return Corpus.open(tmp_path / "out")


def test_what_cannot_be_used_is_counted_by_reason(corpus):
    reasons = sorted(reason.format(reader="CaptionsJsonl") for _, reason in DROPPED.values())
    assert sorted(corpus.manifest.dropped.items()) == [(reason, 1) for reason in reasons]


def test_what_is_kept_is_upright_and_of_eight_bits(corpus):
    assert corpus.records == len(KEPT)
    for record, name in enumerate(KEPT):
        sample = corpus.read(0, record)
        assert sample["captions"] == ["a caption"], "empty captions are left out"
        image = decode(sample["image"], name)
        assert (image.size, image.mode) == ((40, 20), "RGB"), name
        seen = np.asarray(image)[10, [4, 35]].astype(int)
        expected = [(150, 150, 150)] * 2 if name == "sixteen.png" else [RED, GREEN]
        assert np.abs(seen - expected).max() <= 16, name

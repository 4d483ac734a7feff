"""Photographs as they come: what is dropped is counted by reason, what is kept is read upright, in eight bits."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin, features
from rich.console import Console

from pipelines.readers.reader import Drop
from pipelines.stages.media_checks import CheckImage, CheckMedia
from tests.pipelines.test_commands import prepare
from vision.images.decoding import decode
from workbench.core.images import image_format
from workbench.corpora.corpus import Corpus
from workbench.corpora.preview import preview

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


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'
UNREAD = {
    "JPEG XL": b"\xff\x0a\xfa\x7f\x01\x90\x08" + bytes(60),
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(60),
    "PDF": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + bytes(60),
    "PSD": b"8BPS\0\1" + bytes(60),
    "SVG": SVG,
}
BOXED_JXL = b"\0\0\0\x0cJXL \r\n\x87\n\0\0\0\x14ftypjxl " + bytes(60)
SVGS = [
    b'<?xml version="1.0" encoding="UTF-8"?>\n<!-- drawn -->\n' + SVG,
    b'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "svg11.dtd">\n' + SVG,
    b"\xef\xbb\xbf\n  " + SVG,
]


@pytest.mark.parametrize("name", UNREAD)
def test_a_format_that_is_not_read_is_dropped_by_its_name(name: str) -> None:
    assert CheckImage()({"image": UNREAD[name]}) == Drop(f"{name}, a format that is not read here")


def test_the_other_ways_in_which_such_files_begin() -> None:
    assert image_format(BOXED_JXL) == "JPEG XL"
    assert [image_format(svg) for svg in SVGS] == ["SVG"] * 3
    assert image_format(encoded(halves(), "ICO", sizes=[(16, 16)])) == "ICO"
    page = b"<!doctype html><html><body>" + SVG + b"</body></html>"
    assert CheckImage()({"image": page}) == Drop("a web page, not an image")


@pytest.mark.parametrize(
    "data", [b"\0\0\1\0\0\0" + bytes(40), b"plain text", b"<rss></rss>", bytes(64), b"\xff", b"<!-- -->" * 300]
)
def test_rubbish_is_no_image(data: bytes) -> None:
    assert CheckImage()({"image": data}) == Drop("not an image")


@pytest.mark.parametrize(("format", "decoder"), [("AVIF", "avif"), ("JPEG2000", "jpg_2000"), ("WEBP", None)])
def test_formats_that_pillow_may_read(format: str, decoder: str | None) -> None:
    """Where the installed Pillow has the decoder they are stored as JPEG; a cut file is a damaged one."""
    if decoder and not features.check(decoder):
        pytest.skip(f"this Pillow has no {decoder}")
    data = encoded(halves((400, 200)), format)
    kept = CheckImage()({"image": data})
    assert not isinstance(kept, Drop)
    assert kept["image"].startswith(b"\xff\xd8\xff")
    seen = np.asarray(decode(kept["image"], format))[100, [40, 350]].astype(int)
    assert np.abs(seen - [RED, GREEN]).max() <= 16
    assert CheckImage()({"image": data[: len(data) // 3]}) == Drop("damaged image")


def test_media_that_begin_as_videos_do() -> None:
    """AVIF and HEIC stand in the boxes that MP4 has, too."""
    check = CheckMedia(CheckImage())
    assert check({"media": {"left": UNREAD["HEIC"]}}) == Drop("a medium: HEIC, a format that is not read here")
    if features.check("avif"):
        kept = check({"media": {"left": encoded(halves(), "AVIF")}})
        assert not isinstance(kept, Drop)
        assert kept["media"]["left"].startswith(b"\xff\xd8\xff")
    video = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(16)
    assert image_format(video) is None


def test_a_jpeg_that_continues_otherwise_is_damaged() -> None:
    assert CheckImage()({"image": b"\xff\xd8\xff\xe0" + bytes(100)}) == Drop("damaged image")


def _noted(kind: str) -> bytes:
    """A PNG with more in a chunk next to its pixels than Pillow unpacks; `behind` has it after them."""
    notes = PngImagePlugin.PngInfo()
    if kind == "profile":
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        return encoded(halves(), "PNG", icc_profile=profile + bytes(2_500_000))
    if kind == "many":
        for number in range(70):
            notes.add_text(f"k{number}", "x" * 1_000_000, zip=True)
    elif kind == "international":
        notes.add_itxt("k", "x" * 3_000_000, zip=True)
    else:
        notes.add_text("k", "x" * 3_000_000, zip=True)
    data = encoded(halves(), "PNG", pnginfo=notes)
    if kind != "behind":
        return data
    at = data.index(b"zTXt") - 4
    length = 12 + struct.unpack(">I", data[at : at + 4])[0]
    end = len(data) - 12
    return data[:at] + data[at + length : end] + data[at : at + length] + data[end:]


@pytest.mark.parametrize("kind", ["text", "international", "profile", "many", "behind"])
def test_large_metadata_is_no_damage(kind: str) -> None:
    data = _noted(kind)
    with pytest.raises(ValueError, match=r"too large|Too much memory"):
        Image.open(io.BytesIO(data)).load()
    kept = CheckImage()({"image": data})
    assert not isinstance(kept, Drop)
    assert kept["image"] == data, "stored as it is"
    assert np.array_equal(np.asarray(decode(data, kind)), np.asarray(halves()))


def test_damaged_exif_is_no_news(recwarn: pytest.WarningsRecorder) -> None:
    data = encoded(halves(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + bytes(20))
    assert CheckImage(resize=10)({"image": data}).keys() >= {"image"}
    assert decode(data, "here").size == (40, 20)
    assert not recwarn.list


def test_show_says_the_size_that_is_seen() -> None:
    shown = Console(width=200, record=True, file=io.StringIO())
    shown.print(preview({"corpus": "c", "key": "k", "image": turned()}))
    assert "JPEG 40 x 20 (rotated by EXIF)" in shown.export_text()

"""The stages, one by one."""

from __future__ import annotations

import hashlib
import io
import zlib

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from pipelines.readers.reader import Drop
from pipelines.stages.media_checks import CheckImage
from pipelines.stages.pair_filters import clean_captions
from pipelines.stages.text_cleaning import LetterShare, MinimumLength, NormaliseText, RepeatedLines, SetLanguage


def test_normalised_text():
    raw = "\ncafe\u0301  \r\nnext\x00\ufeff line\u2028third\u2029fourth\n"
    assert NormaliseText()({"text": raw})["text"] == "café\nnext line\nthird\n\nfourth"
    assert NormaliseText("NFKC")({"text": "ﬁ"})["text"] == "fi"
    assert NormaliseText()({"captions": ["a\u0301 "]})["captions"] == ["á"]


@pytest.mark.parametrize("field", ["spans", "mention"])
def test_text_with_spans_is_not_normalised(field):
    sample = {"text": "cafe\u0301 ", field: []}
    assert NormaliseText()(dict(sample)) == sample


def test_text_filters():
    assert MinimumLength(3)({"text": "a b c"}) == {"text": "a b c"}
    assert MinimumLength(4)({"text": "a b c"}) == Drop("too short")
    assert MinimumLength()({"text": " \n"}) == Drop("empty")
    assert LetterShare(0.5)({"text": "ab 12"}) == {"text": "ab 12"}
    assert LetterShare(0.6)({"text": "ab 12"}) == Drop("too few letters")
    assert LetterShare(1.0)({"text": "你好"}) == {"text": "你好"}
    assert RepeatedLines(0.3)({"text": "a\na\nb\nc\n\n"}) == {"text": "a\na\nb\nc\n\n"}
    assert RepeatedLines(0.2)({"text": "a\na\nb\nc"}) == Drop("repeated lines")


def test_clean_captions():
    assert clean_captions({"captions": [" a ", " "]}) == {"captions": ["a"]}
    assert clean_captions({"captions": [""]}) == Drop("no caption")
    assert clean_captions({"labels": {}}) == Drop("no caption")
    assert clean_captions({"captions": [" "], "labels": {"label": 1}}) == Drop("no caption")  # the sentence's label
    for said in ({"questions": [{"question": "?"}]}, {"labels": {"animal": "dog"}}):
        assert clean_captions(dict(said)) == said
        assert clean_captions({**said, "captions": []}) == {**said, "captions": []}


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_good_images_keep_their_bytes(photograph, format):
    data = photograph(format=format)
    assert CheckImage()({"image": data}) == {"image": data}


def test_bad_images_are_dropped_by_reason(photograph):
    def reason(data: bytes, **options: int) -> str:
        dropped = CheckImage(**options)({"image": data})
        assert isinstance(dropped, Drop)
        return dropped.reason

    assert reason(b"") == "empty image file"
    assert reason(b"\n<!DOCTYPE html><html>404</html>") == "a web page, not an image"
    assert reason(b"some text") == "not an image"
    whole = photograph(size=(200, 200))
    assert reason(whole[: len(whole) // 2]) == "damaged image"
    assert reason(photograph(format="PNG")[:200]) == "damaged image"
    assert reason(photograph(size=(100, 20)), max_pixels=1999) == "too many pixels"
    assert reason(photograph(size=(100, 20)), min_side=21) == "too small"


def test_a_pixel_bomb_is_not_decoded():
    """A small PNG that claims 60,000 x 60,000 pixels."""
    buffer = io.BytesIO()
    Image.new("1", (1, 1)).save(buffer, "PNG")
    data = bytearray(buffer.getvalue())
    data[16:24] = (60_000).to_bytes(4, "big") * 2

    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    assert CheckImage()({"image": bytes(data)}) == Drop("too many pixels")


def test_other_formats_are_encoded_anew(photograph):
    data = photograph(format="BMP")
    sample = CheckImage()({"image": data, "meta": {"sha256": "original"}})
    assert Image.open(io.BytesIO(sample["image"])).format == "JPEG"
    assert sample["meta"]["source_sha256"] == "original"
    assert sample["meta"]["sha256"] == hashlib.sha256(sample["image"]).hexdigest()
    transparent = CheckImage()({"image": photograph(format="TIFF", mode="RGBA")})
    assert Image.open(io.BytesIO(transparent["image"])).mode == "RGBA"


@pytest.mark.parametrize(
    ("format", "options"), [("TIFF", {}), ("PPM", {}), ("PNG", {"resize": 8}), ("TIFF", {"resize": 8})]
)
def test_sixteen_bit_grey_is_scaled_and_not_clipped(format, options):
    sample = CheckImage(**options)({"image": encoded(np.full((16, 16), 0x8000, np.uint16), format)})
    assert np.unique(np.asarray(Image.open(io.BytesIO(sample["image"])))).tolist() == [128]


@pytest.mark.parametrize("pixels", [np.full((16, 16), 0.5, np.float32), np.full((16, 16), 1 << 30, np.int32)])
def test_pixels_that_could_mean_anything_are_dropped(pixels):
    assert CheckImage()({"image": encoded(pixels, "TIFF")}) == Drop("pixels without a scale")


def test_a_format_next_to_the_list_is_not_opened(photograph, monkeypatch):
    """Pillow would run Ghostscript, an external program, on an EPS file."""
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("ran a PostScript program"))
    assert CheckImage()({"image": photograph(format="EPS")}) == Drop("PostScript, a format that is not read here")


def encoded(pixels: np.ndarray, format: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format)
    return buffer.getvalue()


@pytest.mark.parametrize(("size", "expected"), [((300, 100), (150, 50)), ((90, 400), (50, 222)), ((40, 60), (40, 60))])
def test_resize_shortens_the_shorter_side(photograph, size, expected):
    sample = CheckImage(resize=50)({"image": photograph(size=size)})
    assert Image.open(io.BytesIO(sample["image"])).size == expected


def test_resize_applies_the_exif_rotation():
    image = Image.new("RGB", (120, 60), "red")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", exif=exif)
    sample = CheckImage(resize=30)({"image": buffer.getvalue()})
    stored = Image.open(io.BytesIO(sample["image"]))
    assert stored.size == (30, 60)
    assert 0x0112 not in stored.getexif()


def test_the_language_of_texts_that_do_not_say_it():
    assert SetLanguage("en")({"text": "a"}) == {"text": "a", "language": "en"}
    assert SetLanguage("en")({"text": "a", "language": "de"})["language"] == "de"
    assert SetLanguage("en")({"translations": {"de": "a"}}) == {"translations": {"de": "a"}}

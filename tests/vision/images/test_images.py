"""Decoding: upright RGB from good bytes, one clear message for bad ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from vision.images.decoding import decode, sample_image
from workbench.errors import WorkbenchError

Encode = Callable[..., bytes]


def test_a_png_comes_back_exactly(encode: Encode) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(decode(encode(pixels), "here")), pixels)


def test_transparent_is_white(encode: Encode) -> None:
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert np.asarray(decode(encode(clear), "here")).min() == 255


def test_a_palette_with_transparency(encode: Encode) -> None:
    image = Image.new("P", (4, 4), 0)
    image.putpalette([0, 255, 0] + [0] * 765)
    assert np.asarray(decode(encode(image), "here"))[0, 0].tolist() == [0, 255, 0]
    assert np.asarray(decode(encode(image, transparency=0), "here")).min() == 255


def test_sixteen_bit_grey_is_scaled(encode: Encode) -> None:
    grey = Image.fromarray(np.full((4, 4), 0x8000, np.uint16))
    assert np.asarray(decode(encode(grey), "here"))[0, 0].tolist() == [128, 128, 128]


def test_float_pixels_are_refused_by_name(encode: Encode) -> None:
    with pytest.raises(WorkbenchError, match=r"here.*floating-point pixels; convert them"):
        decode(encode(np.full((4, 4), 0.5, np.float32), "TIFF"), "here")


def test_cmyk_becomes_rgb(encode: Encode) -> None:
    image = decode(encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"), "here")
    red, green, blue = np.asarray(image)[4, 4].tolist()
    assert image.mode == "RGB"
    assert red > 200
    assert max(green, blue) < 60


def test_exif_rotation_is_applied(encode: Encode) -> None:
    image = Image.new("RGB", (20, 10))
    exif = image.getexif()
    exif[0x0112] = 6  # turn by 90 degrees to show
    assert decode(encode(image, "JPEG", exif=exif), "here").size == (10, 20)


def test_a_big_jpeg_is_decoded_smaller(encode: Encode) -> None:
    big = encode(np.zeros((1600, 1600, 3), np.uint8), "JPEG")
    small = decode(big, "here", at_least=300)
    assert 300 <= min(small.size) <= 600
    assert decode(big, "here").size == (1600, 1600)


def test_bad_bytes_name_the_record(encode: Encode) -> None:
    good = encode(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8), "JPEG")
    cases = {
        b"<!DOCTYPE html><html>not found</html>": "text page",
        b"": "0 bytes",
        b"\x00\x01\x02garbage": "not an image in JPEG, PNG",
        good[: len(good) // 2]: "damaged",
    }
    for data, message in cases.items():
        with pytest.raises(WorkbenchError, match=message) as caught:
            sample_image({"key": "n07", "corpus": "web", "image": data})
        assert "'web'" in str(caught.value)
        assert "'n07'" in str(caught.value)


def test_a_broken_png_is_refused(encode: Encode) -> None:
    data = bytearray(encode(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)))
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
    with pytest.raises(WorkbenchError, match="damaged"):
        decode(bytes(data), "here")


def test_the_pixel_limit_acts_before_decoding(encode: Encode) -> None:
    with pytest.raises(WorkbenchError, match=r"100 x 200 = 20,000 pixels; the limit is 19,999"):
        decode(encode(np.zeros((200, 100, 3), np.uint8)), "here", pixel_limit=19_999)


def test_formats_beside_the_list_are_refused(encode: Encode) -> None:
    with pytest.raises(WorkbenchError, match="not an image in"):
        decode(encode(Image.new("RGB", (4, 4)), "EPS"), "here")


def test_a_sample_without_an_image() -> None:
    with pytest.raises(WorkbenchError, match=r"it has no .image. .it has captions, key.*workbench prepare image-text"):
        sample_image({"key": "a", "captions": []})

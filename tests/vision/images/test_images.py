"""Decoding: upright RGB from good bytes, one clear message for bad ones."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from vision.images import decoding
from vision.images.decoding import EncodedImage, decode, sample_image
from workbench.core.errors import WorkbenchError
from workbench.core.images import open_image, upright

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


def photograph(width: int = 96, height: int = 72) -> Image.Image:
    """Soft colours, as of a camera."""
    noise = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


JPEGS: dict[str, tuple[str, dict[str, Any]]] = {
    "colour": ("RGB", {}),
    "progressive": ("RGB", {"progressive": True}),
    "whole colours": ("RGB", {"subsampling": 0}),
    "grey": ("L", {}),
    "upright": ("RGB", {"exif": turned(1)}),
    "cmyk": ("CMYK", {}),
    **{f"turned {number}": ("RGB", {"exif": turned(number)}) for number in range(2, 9)},
}
BY_PILLOW = ("cmyk", "turned")


@pytest.mark.parametrize("name", JPEGS)
def test_the_header_says_who_decodes_and_the_image_is_the_same(
    name: str, encode: Encode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode, options = JPEGS[name]
    data = encode(photograph().convert(mode), "JPEG", **options)
    calls = []
    decoder = decoding.decode_jpeg
    monkeypatch.setattr(decoding, "decode_jpeg", lambda *args: calls.append(args) or decoder(*args))
    encoded = EncodedImage(data, "here")
    seen = encoded.pixels().numpy().transpose(1, 2, 0)
    assert len(calls) == (not name.startswith(BY_PILLOW))
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    assert encoded.size == expected.shape[1::-1]
    assert seen.shape == expected.shape
    assert np.abs(seen.astype(int) - expected).max() <= 2, "versions of libjpeg may round otherwise"
    assert encoded.pixels(2).shape == (3, expected.shape[0] // 2, expected.shape[1] // 2)
    assert np.array_equal(encoded.pixels().numpy().transpose(1, 2, 0), seen), "asked for again"


def test_an_image_that_stands_upright_is_not_copied(encode: Encode) -> None:
    """Copies in fresh memory took a third of checking an image."""
    image = open_image(encode(photograph(), "JPEG", exif=turned(1)))
    assert upright(image) is image
    lying = open_image(encode(photograph(), "JPEG", exif=turned(6)))
    assert upright(lying).size == (72, 96)
    assert upright(lying).size == (72, 96), "and not turned again"
    cut = encode(photograph(), "JPEG")[:-400]
    with pytest.raises(OSError, match="truncated"):
        upright(open_image(cut))


def test_a_big_jpeg_is_decoded_smaller(encode: Encode) -> None:
    encoded = EncodedImage(encode(np.zeros((1600, 1200, 3), np.uint8), "JPEG"), "here")
    heights = {shrink: encoded.pixels(shrink).shape[1] for shrink in (0, 1, 2, 3, 5, 8, 100)}
    assert heights == {0: 1600, 1: 1600, 2: 800, 3: 800, 5: 400, 8: 200, 100: 200}
    assert encoded.size == encoded.image().size == (1200, 1600)
    assert EncodedImage(encode(np.zeros((160, 120, 3), np.uint8)), "here").pixels(8).shape == (3, 160, 120), (
        "a PNG is not"
    )


def test_where_torchvision_has_no_jpeg_pillow_decodes(encode: Encode, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(photograph(), "JPEG")
    expected = EncodedImage(data, "here").pixels()

    def missing(*args: object) -> None:
        raise RuntimeError("decode_jpeg: torchvision not compiled with libjpeg support")

    monkeypatch.setattr(decoding, "decode_jpeg", missing)
    assert np.abs(EncodedImage(data, "here").pixels().int() - expected.int()).max() <= 2


def test_damaged_jpegs_are_read_or_refused_as_pillow_does(encode: Encode) -> None:
    good = encode(photograph(48, 40), "JPEG")
    draws = np.random.default_rng(0)
    damaged = [good[:length] for length in range(0, len(good), 29)]
    for _ in range(150):
        data = bytearray(good)
        data[draws.integers(len(data))] = draws.integers(256)
        damaged.append(bytes(data))
    seen = {True: 0, False: 0}
    for data in damaged:
        try:
            expected = np.asarray(decode(data, "here")).transpose(2, 0, 1)
        except WorkbenchError as error:
            with pytest.raises(WorkbenchError, match=re.escape(str(error))):
                EncodedImage(data, "here").pixels()
            seen[False] += 1
        else:
            assert np.abs(EncodedImage(data, "here").pixels().numpy().astype(int) - expected).max() <= 2
            seen[True] += 1
    assert min(seen.values()) > 20


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


def test_formats_next_to_the_list_are_refused(encode: Encode) -> None:
    with pytest.raises(WorkbenchError, match=r"here: PostScript, an unsupported format \(allowed: JPEG, PNG"):
        decode(encode(Image.new("RGB", (4, 4)), "EPS"), "here")


def test_a_sample_without_an_image() -> None:
    with pytest.raises(WorkbenchError, match=r"it has no .image. .it has captions, key.*workbench prepare image-text"):
        sample_image({"key": "a", "captions": []})

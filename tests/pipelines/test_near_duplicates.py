"""Near duplicates: hashes against plain loops, and what they find among photographs and captions."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from pipelines.preparing.duplicates import (
    BITS,
    caption_hash,
    image_hash,
    near_captions,
    near_images,
    rows_of_band,
    shingles,
)
from workbench.core.errors import WorkbenchError


def photo(seed: int, size: tuple[int, int] = (320, 240)) -> Image.Image:
    """Something smooth, as photographs are."""
    small = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def encoded(image: Image.Image, format: str = "JPEG", **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def test_the_hash_of_a_ramp_and_of_its_mirror_image():
    """Darker than the right neighbour everywhere, and never darker than the one below; then the other way round."""
    ramp = np.tile(np.linspace(0, 255, 90, dtype=np.uint8), (90, 1))
    there = image_hash(encoded(Image.fromarray(ramp), "PNG"))
    back = image_hash(encoded(Image.fromarray(ramp[:, ::-1]), "PNG"))
    turned = image_hash(encoded(Image.fromarray(ramp.T), "PNG"))
    assert there == (1 << BITS) - (1 << BITS // 2)
    assert back == 0
    assert turned == (1 << BITS // 2) - 1


def test_copies_are_near_and_others_are_far():
    original = image_hash(encoded(photo(0), quality=95))
    copies = [
        encoded(photo(0), quality=40),
        encoded(photo(0).resize((160, 120)), "PNG"),
        encoded(photo(0).point(lambda v: int(0.9 * v))),
    ]
    assert max((original ^ image_hash(copy)).bit_count() for copy in copies) <= 4
    others = [image_hash(encoded(photo(seed))) for seed in range(1, 30)]
    assert min((original ^ other).bit_count() for other in others) > 16


def test_what_is_no_image_has_no_hash():
    assert image_hash(b"no image") is None
    assert near_images([None, None], 4) == [False, False]


@pytest.mark.parametrize("distance", [0, 1, 4, 16])
def test_bands_find_what_a_loop_over_all_pairs_finds(distance):
    rng = np.random.default_rng(distance)
    hashes = [int.from_bytes(rng.bytes(BITS // 8), "big") for _ in range(40)]
    for _ in range(120):
        flipped = hashes[rng.integers(len(hashes))]
        for bit in rng.choice(BITS, rng.integers(0, 2 * distance + 2), replace=False):
            flipped ^= 1 << int(bit)
        hashes.append(flipped)
    kept: list[int] = []
    expected = []
    for one in hashes:
        expected.append(any((one ^ other).bit_count() <= distance for other in kept))
        if not expected[-1]:
            kept.append(one)
    assert near_images(hashes, distance) == expected
    assert any(expected)


def test_minhash_estimates_the_share_of_shingles():
    texts = [
        ("A dog runs on the beach near the sea.", "a dog runs on the beach, near the sea"),
        ("A dog runs on the beach near the sea.", "A dog is running on the beach near the sea."),
        ("A dog runs on the beach near the sea.", "Two women sell fruit at a market."),
    ]
    for one, other in texts:
        share = len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))
        estimate = (caption_hash(one) == caption_hash(other)).mean()
        assert abs(share - estimate) < 4 * np.sqrt(0.25 / 128)
    assert near_captions(map(caption_hash, [*texts[0], *texts[2]]), 0.8) == [False, True, True, False]


def test_short_and_empty_captions_are_equal_to_their_like_alone():
    assert near_captions(map(caption_hash, ["", "a", "A!", "...", "b"]), 0.8) == [False, False, True, True, False]


def test_bands_are_as_narrow_as_the_threshold_asks():
    for threshold in (0.3, 0.5, 0.8, 0.95):
        rows = rows_of_band(threshold)
        assert 1 - (1 - threshold**rows) ** (128 // rows) >= 0.95
    assert rows_of_band(0.5) < rows_of_band(0.8)
    with pytest.raises(WorkbenchError, match=r"--near-captions 0\.001: too small"):
        rows_of_band(0.001)

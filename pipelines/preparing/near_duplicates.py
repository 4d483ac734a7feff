"""What is nearly the same: images by a perceptual hash, captions by MinHash. The first of each is kept.

Images: the difference hash of Ben Hoyt (dhash, 2017): in grey, 9 x 9 pixels; 64 bits say whether a pixel is darker than
its right neighbour, 64 whether it is darker than the one below. Captions: MinHash (Broder 1997) of the character
5-grams of the caption in lower case without punctuation, in bands (Leskovec et al., Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from PIL import Image

from workbench.errors import WorkbenchError
from workbench.images import FAILURES, open_image, upright

SIDE = 8
BITS = 2 * SIDE * SIDE
PERMUTATIONS = 128
SHINGLE = 5
FOUND = 0.95
"""The share of pairs at the threshold that the bands find, at least."""
_DRAWN = np.random.default_rng(0)
_FACTORS = _DRAWN.integers(0, 2**63, PERMUTATIONS, np.uint64) * np.uint64(2) + np.uint64(1)
_TERMS = _DRAWN.integers(0, 2**63, PERMUTATIONS, np.uint64)
_NOT_WORDS = re.compile(r"[\W_]+")


def image_hash(data: bytes) -> int | None:
    """The hash of an encoded image, of `BITS` bits; None where it cannot be decoded."""
    try:
        image = open_image(data)
        image.draft("L", (4 * SIDE, 4 * SIDE))
        small = upright(image).convert("L").resize((SIDE + 1, SIDE + 1), Image.Resampling.BOX)
    except FAILURES:
        return None
    pixels = np.asarray(small, np.int16)
    right = pixels[:SIDE, :SIDE] < pixels[:SIDE, 1:]
    below = pixels[:SIDE, :SIDE] < pixels[1:, :SIDE]
    return int.from_bytes(np.packbits(np.concatenate([right.ravel(), below.ravel()])).tobytes(), "big")


def near_images(hashes: Iterable[int | None], distance: int) -> list[bool]:
    """For each hash whether an earlier one that is kept differs in `distance` bits or fewer.

    Hashes that differ in d bits have at least one of d + 1 bands in common, so only those of a band are compared.
    """
    bands = distance + 1
    edges = [BITS * i // bands for i in range(bands + 1)]
    kept: list[defaultdict[int, list[int]]] = [defaultdict(list) for _ in range(bands)]
    repeated = []
    for found in hashes:
        if found is None:
            repeated.append(False)
            continue
        parts = [(found >> low) & ((1 << (high - low)) - 1) for low, high in pairwise(edges)]
        near = any(
            (found ^ other).bit_count() <= distance
            for table, part in zip(kept, parts, strict=True)
            for other in table.get(part, ())
        )
        repeated.append(near)
        if not near:
            for table, part in zip(kept, parts, strict=True):
                table[part].append(found)
    return repeated


def shingles(caption: str) -> set[str]:
    """Stretches of `SHINGLE` characters of the caption as it is compared; the whole of a shorter one."""
    plain = _NOT_WORDS.sub(" ", unicodedata.normalize("NFKC", caption).lower()).strip()
    return {plain[i : i + SHINGLE] for i in range(max(1, len(plain) - SHINGLE + 1))}


def caption_hash(caption: str) -> np.ndarray:
    """[PERMUTATIONS] uint32: two captions have as large a share of them in common as of their shingles, about."""
    hashed = np.array([zlib.crc32(one.encode()) for one in shingles(caption)], np.uint64)
    with np.errstate(over="ignore"):  # modulo 2 ** 64
        moved = hashed[:, None] * _FACTORS + _TERMS
    return (moved >> np.uint64(32)).min(axis=0).astype(np.uint32)


def near_captions(hashes: Iterable[np.ndarray], threshold: float) -> list[bool]:
    """For each hash whether an earlier one that is kept has `threshold` of its shingles in common, about."""
    rows = rows_of_band(threshold)
    bands = PERMUTATIONS // rows
    tables: list[defaultdict[bytes, list[int]]] = [defaultdict(list) for _ in range(bands)]
    kept: list[np.ndarray] = []
    repeated = []
    for found in hashes:
        keys = [found[i * rows : (i + 1) * rows].tobytes() for i in range(bands)]
        others = {number for table, key in zip(tables, keys, strict=True) for number in table.get(key, ())}
        near = any(float((kept[number] == found).mean()) >= threshold for number in others)
        repeated.append(near)
        if not near:
            for table, key in zip(tables, keys, strict=True):
                table[key].append(len(kept))
            kept.append(found)
    return repeated


def rows_of_band(threshold: float) -> int:
    """How many hashes a band has: as many as find `FOUND` of the pairs at the threshold."""
    for rows in range(32, 0, -1):
        if 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= FOUND:
            return rows
    raise WorkbenchError(f"--near-captions {threshold}: too small; allowed: 0.1 to 1, for example 0.8")


def caption_hashes(captions: Sequence[str]) -> np.ndarray:
    """[captions, PERMUTATIONS] uint32."""
    return np.stack([caption_hash(caption) for caption in captions]) if captions else np.empty((0, PERMUTATIONS))

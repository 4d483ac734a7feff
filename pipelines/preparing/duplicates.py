"""Duplicates: of contents (a separate pass before writing) and of keys (a check afterwards).

Exact duplicates take 8 bytes a sample in memory while sorting. Near duplicates take 16 bytes an image and half a
kilobyte a caption. The first one is kept. Images are compared by the difference hash of Ben Hoyt (dhash, 2017): in
grey, 9 x 9 pixels; 64 bits say whether a pixel is darker than its right neighbour, 64 whether it is darker than the
one below. Captions are compared by MinHash (Broder 1997) of their character 5-grams in lower case without
punctuation, in bands (Leskovec et al., Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from pipelines.preparing.chunks import Chunk, Conversion, Repeated
from pipelines.preparing.engines.engine import Engine
from pipelines.readers.reader import Drop
from workbench.core.errors import WorkbenchError
from workbench.core.images import FAILURES, open_image, upright
from workbench.corpora.schema.places import texts_in
from workbench.corpora.shards.index import ShardIndex, index_name
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)
SIDE = 8
BITS = 2 * SIDE * SIDE
PERMUTATIONS = 128
SHINGLE = 5
FOUND = 0.95
"""The smallest share of pairs at the threshold that the bands find."""
_DRAWN = np.random.default_rng(0)
_FACTORS = _DRAWN.integers(0, 2**63, PERMUTATIONS, np.uint64) * np.uint64(2) + np.uint64(1)
_TERMS = _DRAWN.integers(0, 2**63, PERMUTATIONS, np.uint64)
_NOT_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Duplicates:
    """Which duplicates are dropped.

    Args:
        exact: drop samples with the same text or image as an earlier one.
        near_images: drop samples whose image hash differs from an earlier one in at most this many bits.
        near_captions: drop captions with at least this similarity to an earlier one.
    """

    exact: bool = False
    near_images: int | None = None
    near_captions: float | None = None

    @property
    def wanted(self) -> bool:
        """Whether any duplicates are searched for."""
        return self.exact or self.near_images is not None or self.near_captions is not None


class Hashes(NamedTuple):
    """The hashes of a chunk: `contents` [records] uint64, 0 for a record that the reader drops; the hashes of the
    images and captions after the stages, None and empty where a record is dropped."""

    contents: np.ndarray
    images: list[int | None]
    captions: list[np.ndarray]


def find_repeated(
    wanted: Duplicates, conversion: Conversion, chunks: Iterable[Chunk], engine: Engine
) -> dict[int, Repeated]:
    """The duplicates in each chunk of earlier records; the first one is kept."""
    hashed = list(engine.each(hashes_of, (wanted, conversion), chunks, conversion.device))
    if not hashed:
        return {}
    ends = np.cumsum([len(part.contents) for part in hashed])
    places = [(number, place) for number, part in enumerate(hashed) for place in range(len(part.contents))]
    reasons: list[str | None] = [None] * len(places)
    if wanted.exact:
        whole = np.concatenate([part.contents for part in hashed])
        first = np.zeros(len(whole), np.bool_)
        first[np.unique(whole, return_index=True)[1]] = True
        reasons = ["duplicate" if again else None for again in (~first & (whole != 0)).tolist()]
    if wanted.near_images is not None:
        images = (image for part in hashed for image in part.images)
        left = (None if reason else image for reason, image in zip(reasons, images, strict=True))
        near = near_images(left, wanted.near_images)
        reasons = ["near-duplicate image" if again else reason for again, reason in zip(near, reasons, strict=True)]
    captions: dict[tuple[int, int], frozenset[int]] = {}
    if wanted.near_captions is not None:
        of_records = [one for part in hashed for one in part.captions]
        captions = _near_captions(of_records, places, reasons, wanted.near_captions)
    found: dict[int, tuple[dict[int, str], dict[int, frozenset[int]]]] = {n: ({}, {}) for n in range(len(ends))}
    for (number, place), reason in zip(places, reasons, strict=True):
        if reason is not None:
            found[number][0][place] = reason
        elif (number, place) in captions:
            found[number][1][place] = captions[number, place]
    return {number: Repeated(*two) for number, two in found.items()}


def _near_captions(
    hashes: Sequence[np.ndarray], places: Sequence[tuple[int, int]], reasons: list[str | None], threshold: float
) -> dict[tuple[int, int], frozenset[int]]:
    """The captions to drop from records that keep others; a record without captions gets a reason."""
    kept = [np.empty((0, PERMUTATIONS)) if reason else found for reason, found in zip(reasons, hashes, strict=True)]
    near = iter(near_captions((row for found in kept for row in found), threshold))
    left_out, lost = {}, 0
    for number, (place, found) in enumerate(zip(places, kept, strict=True)):
        again = frozenset(i for i in range(len(found)) if next(near))
        if again and len(again) == len(found):
            reasons[number] = "near-duplicate captions"
        elif again:
            left_out[place] = again
            lost += len(again)
    log.info("dropped %d near-duplicate captions of records that keep others", lost)
    return left_out


def hashes_of(task: tuple[Duplicates, Conversion], chunk: Chunk) -> Hashes:
    """The hashes of a chunk's records."""
    wanted, conversion = task
    chunk = chunk.received()
    contents = np.zeros(len(chunk.records), np.uint64)
    images: list[int | None] = [None] * len(chunk.records)
    captions = [np.empty((0, PERMUTATIONS), np.uint32)] * len(chunk.records)
    if wanted.exact:
        samples = (conversion.read(record) for record in chunk.records)
        contents[:] = [0 if isinstance(sample, Drop) else content_hash(sample) for sample in samples]
    if wanted.near_images is None and wanted.near_captions is None:
        return Hashes(contents, images, captions)
    for place, sample in conversion.samples(chunk):
        if isinstance(sample, Drop):
            continue
        if wanted.near_images is not None and "image" in sample:
            images[place] = image_hash(sample["image"])
        if wanted.near_captions is not None:
            captions[place] = caption_hashes(sample.get("captions", []))
    return Hashes(contents, images, captions)


def content_hash(sample: Sample) -> int:
    """A 64-bit hash of the content of a sample: its image, or its texts up to Unicode form and white space.

    Samples with several media are distinguished by all of them and their texts, those of a triples corpus by their id.
    """
    if "image" in sample:
        content = sample["image"]
    else:
        texts = [sample["id"]] if "id" in sample else list(texts_in(sample))
        joined = "\0".join(" ".join(unicodedata.normalize("NFC", text).split()) for text in texts)
        content = joined.encode() + b"".join(sample.get("media", {}).values())
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") | 1


def image_hash(data: bytes) -> int | None:
    """The hash of an encoded image, of `BITS` bits; None if it cannot be decoded."""
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
    """For each hash whether an earlier kept one differs in at most `distance` bits.

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
    """The character n-grams of `SHINGLE` characters of a normalised caption; the whole of a shorter one."""
    plain = _NOT_WORDS.sub(" ", unicodedata.normalize("NFKC", caption).lower()).strip()
    return {plain[i : i + SHINGLE] for i in range(max(1, len(plain) - SHINGLE + 1))}


def caption_hash(caption: str) -> np.ndarray:
    """[PERMUTATIONS] uint32: the share of equal ones estimates the share of common shingles."""
    hashed = np.array([zlib.crc32(one.encode()) for one in shingles(caption)], np.uint64)
    with np.errstate(over="ignore"):  # modulo 2 ** 64
        moved = hashed[:, None] * _FACTORS + _TERMS
    return (moved >> np.uint64(32)).min(axis=0).astype(np.uint32)


def near_captions(hashes: Iterable[np.ndarray], threshold: float) -> list[bool]:
    """For each hash whether an earlier kept one shares at least about `threshold` of its shingles."""
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
    """The number of hashes in a band: the most that find `FOUND` of the pairs at the threshold."""
    for rows in range(32, 0, -1):
        if 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= FOUND:
            return rows
    raise WorkbenchError(f"--near-captions {threshold}: too small; allowed: 0.1 to 1, for example 0.8")


def caption_hashes(captions: Sequence[str]) -> np.ndarray:
    """[captions, PERMUTATIONS] uint32."""
    return np.stack([caption_hash(caption) for caption in captions]) if captions else np.empty((0, PERMUTATIONS))


def check_keys(shards: Sequence[Path]) -> None:
    """Raises WorkbenchError where two shards hold a record with the same key, naming both."""
    indexes = [ShardIndex(path.with_name(index_name(path.name))) for path in shards]
    hashed = [np.array([_key_hash(i.key(r)) for r in range(i.records)], np.uint64) for i in indexes]
    whole = np.concatenate([np.empty(0, np.uint64), *hashed])
    values, counts = np.unique(whole, return_counts=True)
    if not (counts > 1).any():
        return
    twice = values[counts > 1][0]
    found = [
        (path.name, index.key(int(record)))
        for path, index, hashes in zip(shards, indexes, hashed, strict=True)
        for record in np.flatnonzero(hashes == twice)
    ]
    raise WorkbenchError(
        f"two records have the key {found[0][1]!r} (in {found[0][0]} and {found[1][0]}; {int((counts > 1).sum())} keys "
        "are used more than once). Fix the ids, or number the records with --numbered-keys, and choose a new --output"
    )


def _key_hash(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")

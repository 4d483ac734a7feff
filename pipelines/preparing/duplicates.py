"""Duplicates: of contents (a separate pass before writing) and of keys (a check afterwards).

Exact duplicates are found by the workers, in partitions of the hashes: 12 bytes a sample in files. Near duplicates take
16 bytes an image and half a kilobyte a caption in the memory of the main process. The first one is kept. Images are
compared by the difference hash of Ben Hoyt (dhash, 2017): in grey, 9 x 9 pixels; 64 bits say whether a pixel is darker
than its right neighbour, 64 whether it is darker than the one below. Captions are compared by MinHash (Broder 1997) of
their character 5-grams in lower case without punctuation, in bands (Leskovec et al., Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
from workbench.core.files.drafts import atomic, explained
from workbench.core.images import FAILURES, open_image, upright
from workbench.corpora.shards.index import ShardIndex, index_name
from workbench.corpora.shards.record import content_of

log = logging.getLogger(__name__)
HASH = np.dtype([("hash", np.uint64), ("place", np.uint32)])
PARTITION = 4 << 20
"""The most hashes, about, that a worker compares at once."""
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
    """The hashes of the images and captions of a chunk after the stages, None and empty where a record is dropped.
    Those of the contents are in a file."""

    images: list[int | None]
    captions: list[np.ndarray]


@dataclass(frozen=True)
class HashTask:
    """What a worker needs to hash a chunk.

    Args:
        folder: of the files with the hashes of contents, which all workers see. A file has a row (hash, place) for
            each record of a chunk that is not dropped, sorted.
    """

    wanted: Duplicates
    conversion: Conversion
    folder: Path


def find_repeated(
    wanted: Duplicates, conversion: Conversion, chunks: Iterable[tuple[Chunk, str]], engine: Engine, folder: Path
) -> dict[int, Repeated]:
    """The duplicates in each chunk of earlier records; the first one is kept.

    Each record is hashed once, where its chunk is read. Equal contents are found in partitions of the hashes, by the
    same workers: this process sees the duplicates only, and of near duplicates the hashes.

    Args:
        chunks: in any order, each with the name of the file for its hashes. A file that is there is not written again.
    """
    task = HashTask(wanted, conversion, folder)
    names: dict[int, str] = {}

    def named() -> Iterator[tuple[Chunk, str]]:
        for chunk, name in chunks:
            names[chunk.number] = name
            yield chunk, name

    with explained(folder):
        folder.mkdir(exist_ok=True)
    made = list(engine.each(hashes_of, task, named(), conversion.device))
    hashed = dict(sorted(zip(names, made, strict=True)))
    reasons: dict[int, dict[int, str]] = {number: {} for number in hashed}
    if wanted.exact:
        for number, place in _equal_contents(task, dict(sorted(names.items())), engine):
            reasons[number][place] = "duplicate"
    if wanted.near_images is not None:
        places = [(number, place) for number, found in hashed.items() for place in range(len(found.images))]
        images = (None if place in reasons[number] else hashed[number].images[place] for number, place in places)
        for (number, place), again in zip(places, near_images(images, wanted.near_images), strict=True):
            if again:
                reasons[number][place] = "near-duplicate image"
    captions: dict[int, dict[int, frozenset[int]]] = {}
    if wanted.near_captions is not None:
        captions = _near_captions(hashed, reasons, wanted.near_captions)
    return {number: Repeated(reasons[number], captions.get(number, {})) for number in hashed}


def _equal_contents(task: HashTask, names: dict[int, str], engine: Engine) -> Iterator[tuple[int, int]]:
    """(chunk, place) of each record whose content an earlier one has."""
    rows = sum((task.folder / name).stat().st_size for name in names.values()) // HASH.itemsize
    count = max(1, -(-rows // PARTITION))
    for found in engine.each(repeated_in, task, ((names, part, count) for part in range(count))):
        yield from found.tolist()


def repeated_in(task: HashTask, unit: tuple[dict[int, str], int, int]) -> np.ndarray:
    """[duplicates, 2]: chunk and place of the records of a partition whose content an earlier one has.

    Args:
        unit: the files by chunk, the number of the partition, and the number of partitions.
    """
    names, part, parts = unit
    edges = np.array([2**64 * part // parts, 2**64 * (part + 1) // parts - 1], np.uint64)
    found = []
    for number, name in names.items():
        stored = np.load(task.folder / name)
        begin = np.searchsorted(stored["hash"], edges[0], "left")
        after = np.searchsorted(stored["hash"], edges[1], "right")
        rows = np.empty(after - begin, [("hash", np.uint64), ("where", np.uint32, 2)])
        rows["hash"], rows["where"][:, 0], rows["where"][:, 1] = (
            stored["hash"][begin:after],
            number,
            stored["place"][begin:after],
        )
        found.append(rows)
    whole = np.concatenate(found)
    whole = whole[np.argsort(whole["hash"], kind="stable")]
    again = whole["hash"][1:] == whole["hash"][:-1]
    return whole["where"][1:][again]


def _near_captions(
    hashed: dict[int, Hashes], reasons: dict[int, dict[int, str]], threshold: float
) -> dict[int, dict[int, frozenset[int]]]:
    """The captions to drop from records that keep others, by chunk and place; a record without captions gets a
    reason."""
    none = np.empty((0, PERMUTATIONS))
    kept = {
        number: [none if place in reasons[number] else rows for place, rows in enumerate(found.captions)]
        for number, found in hashed.items()
    }
    near = iter(near_captions((row for found in kept.values() for rows in found for row in rows), threshold))
    left_out: dict[int, dict[int, frozenset[int]]] = {number: {} for number in kept}
    for number, found in kept.items():
        for place, rows in enumerate(found):
            again = frozenset(i for i in range(len(rows)) if next(near))
            if again and len(again) == len(rows):
                reasons[number][place] = "near-duplicate captions"
            elif again:
                left_out[number][place] = again
    lost = sum(len(again) for found in left_out.values() for again in found.values())
    log.info("dropped %d near-duplicate captions of records that keep others", lost)
    return left_out


def hashes_of(task: HashTask, unit: tuple[Chunk, str]) -> Hashes:
    """The hashes of a chunk's records; those of the contents are written to the file of this name, unless it is
    there."""
    wanted, conversion, (chunk, name) = task.wanted, task.conversion, unit
    near = wanted.near_images is not None or wanted.near_captions is not None
    if not near and (task.folder / name).exists():
        return Hashes([], [])
    chunk = chunk.received(conversion.reader)
    if wanted.exact:
        samples = (conversion.read(record) for record in chunk.records)
        contents = np.array([0 if isinstance(sample, Drop) else content_of(sample) for sample in samples], np.uint64)
        rows = np.empty(len(contents), HASH)
        rows["hash"], rows["place"] = contents, np.arange(len(contents))
        rows = rows[contents != 0]
        with atomic(task.folder / name) as file:
            np.save(file, rows[np.argsort(rows["hash"], kind="stable")])
    if not near:
        return Hashes([], [])
    images: list[int | None] = [None] * len(chunk.records)
    captions = [np.empty((0, PERMUTATIONS), np.uint32)] * len(chunk.records)
    for place, sample in conversion.samples(chunk):
        if isinstance(sample, Drop):
            continue
        if wanted.near_images is not None and "image" in sample:
            images[place] = image_hash(sample["image"])
        if wanted.near_captions is not None:
            captions[place] = caption_hashes(sample.get("captions", []))
    return Hashes(images, captions)


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

"""Duplicates: of contents (a pass of its own before the writing) and of keys (a check after it).

Exact ones take 8 bytes per sample in memory while sorting, near ones 16 bytes an image and half a kilobyte a caption.
"""

from __future__ import annotations

import hashlib
import logging
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.preparing.chunks import Chunk, Job, Repeated, read, samples_of
from pipelines.preparing.near_duplicates import PERMUTATIONS, caption_hashes, image_hash, near_captions, near_images
from pipelines.preparing.processes import each
from pipelines.readers.reader import Drop
from workbench.corpora.index import ShardIndex, index_name
from workbench.corpora.places import texts_in
from workbench.errors import WorkbenchError
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)


class Hashes(NamedTuple):
    """Of a chunk: `contents` [records] uint64, 0 for a record that the reader itself drops; the images' and captions'
    hashes of what comes out of the stages, None and none where nothing does."""

    contents: np.ndarray
    images: list[int | None]
    captions: list[np.ndarray]


def find_repeated(job: Job, chunks: Iterable[Chunk], workers: int) -> dict[int, Repeated]:
    """What the records of each chunk have in common with earlier ones; the first one is kept."""
    hashed = list(each(hashes_of, job, chunks, workers))
    if not hashed:
        return {}
    ends = np.cumsum([len(part.contents) for part in hashed])
    places = [(number, place) for number, part in enumerate(hashed) for place in range(len(part.contents))]
    reasons: list[str | None] = [None] * len(places)
    if job.dedupe:
        whole = np.concatenate([part.contents for part in hashed])
        first = np.zeros(len(whole), np.bool_)
        first[np.unique(whole, return_index=True)[1]] = True
        reasons = ["duplicate" if again else None for again in (~first & (whole != 0)).tolist()]
    if job.near_images is not None:
        images = (image for part in hashed for image in part.images)
        left = (None if reason else image for reason, image in zip(reasons, images, strict=True))
        near = near_images(left, job.near_images)
        reasons = ["near-duplicate image" if again else reason for again, reason in zip(near, reasons, strict=True)]
    captions: dict[tuple[int, int], frozenset[int]] = {}
    if job.near_captions is not None:
        captions = _near_captions([one for part in hashed for one in part.captions], places, reasons, job.near_captions)
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
    """The captions to leave out of records that keep others; records that keep none get a reason."""
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
    log.info("%d near-duplicate captions are left out of records that keep others", lost)
    return left_out


def hashes_of(job: Job, chunk: Chunk) -> Hashes:
    """What the records of a chunk are compared by."""
    contents = np.zeros(len(chunk.records), np.uint64)
    images: list[int | None] = [None] * len(chunk.records)
    captions = [np.empty((0, PERMUTATIONS), np.uint32)] * len(chunk.records)
    if job.dedupe:
        samples = (read(job, record) for record in chunk.records)
        contents[:] = [0 if isinstance(sample, Drop) else content_hash(sample) for sample in samples]
    if job.near_images is None and job.near_captions is None:
        return Hashes(contents, images, captions)
    for start in range(0, len(chunk.records), job.block):
        for place, sample in enumerate(samples_of(job, chunk, start), start):
            if isinstance(sample, Drop):
                continue
            if job.near_images is not None and "image" in sample:
                images[place] = image_hash(sample["image"])
            if job.near_captions is not None:
                captions[place] = caption_hashes(sample.get("captions", []))
    return Hashes(contents, images, captions)


def content_hash(sample: Sample) -> int:
    """A 64-bit hash of what makes a sample the same: its image, or its texts up to Unicode form and white space.

    Samples with several media are told apart by all of them and their texts, those of a triples corpus by their id.
    """
    if "image" in sample:
        content = sample["image"]
    else:
        texts = [sample["id"]] if "id" in sample else list(texts_in(sample))
        joined = "\0".join(" ".join(unicodedata.normalize("NFC", text).split()) for text in texts)
        content = joined.encode() + b"".join(sample.get("media", {}).values())
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") | 1


def check_keys(shards: Sequence[Path]) -> None:
    """Raises WorkbenchError where two shards hold a record of the same key, naming both."""
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
        "are used more than once). Mend the ids, or number the records with --numbered-keys, and choose a new --output"
    )


def _key_hash(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")

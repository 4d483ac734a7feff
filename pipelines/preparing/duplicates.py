"""Exact duplicates: of contents (a pass of its own before the writing) and of keys (a check after it).

Both hold 8 bytes per sample in memory: a hundred million documents need under 3 GB while sorting.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from pipelines.preparing.chunks import Chunk, Job, read
from pipelines.preparing.processes import each
from pipelines.readers.reader import Drop
from workbench.corpora.index import ShardIndex, index_name
from workbench.corpora.places import texts_in
from workbench.errors import WorkbenchError
from workbench.sequences.sequence import Sample


def find_duplicates(job: Job, chunks: Iterable[Chunk], workers: int) -> dict[int, frozenset[int]]:
    """For each chunk the places whose content an earlier record has too; the first one is kept."""
    hashed = list(each(content_hashes, job, chunks, workers))
    if not hashed:
        return {}
    whole = np.concatenate(hashed)
    repeated = np.ones(len(whole), np.bool_)
    repeated[np.unique(whole, return_index=True)[1]] = False
    repeated &= whole != 0
    ends = np.cumsum([len(part) for part in hashed])
    places = np.split(repeated, ends[:-1])
    return {number: frozenset(np.flatnonzero(part).tolist()) for number, part in enumerate(places)}


def content_hashes(job: Job, chunk: Chunk) -> np.ndarray:
    """[records] uint64; 0 for a record that the reader itself drops."""
    samples = (read(job, record) for record in chunk.records)
    return np.array([0 if isinstance(s, Drop) else content_hash(s) for s in samples], np.uint64)


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

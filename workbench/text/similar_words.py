"""Similar words: the nearest words by word vectors for each word of a corpus, in one safetensors file.

A word is the ids of its tokens under one tokenizer. Its similar words have as many tokens, so that they can replace it.
The arrays, by the row of a word: `words` [tokens of all words] with `ends` [words] (the ends of each word's tokens),
`hashes` [words], ascending, for the search of a word, and `similar` [words, nearest], rows of the same table, the most
similar first, -1 after the last. The metadata has the tokenizer's identity, the provenance of the table, and a checksum
of all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.checksums import matches
from workbench.core.files.drafts import atomic

KIND = "similar words"
METADATA = ("tokenizer", "provenance", "sha256")


class SimilarWordTable(NamedTuple):
    """The arrays of the file."""

    words: np.ndarray
    ends: np.ndarray
    hashes: np.ndarray
    similar: np.ndarray


class SimilarWords:
    """A table of similar words; its arrays stay memory-mapped.

    Attributes:
        tokenizer: the identity of the tokenizer whose ids the words are.
        provenance: the provenance of the table.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a file.

        Raises:
            WorkbenchError: there is no such file, it has another content, or it was changed or damaged.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise WorkbenchError(
                f"there is no file {path} with similar words; `workbench prepare similar-words CORPUS --tokenizer "
                f"TOKENIZER --output {quoted(path)}` creates it"
            )
        self.table, metadata = _read(self.path)
        checksum = metadata["sha256"]
        if not _is_whole(self.table) or not matches(self.path, checksum, lambda p: _checksum(*_read(p))):
            raise WorkbenchError(f"{path} was changed or damaged after it was written; create it again")
        self.tokenizer = metadata["tokenizer"]
        self.provenance: dict[str, Any] = json.loads(metadata["provenance"])
        note(KIND, path, checksum)

    def __len__(self) -> int:
        return len(self.table.ends)

    def __reduce__(self) -> tuple[type[SimilarWords], tuple[Path]]:
        return SimilarWords, (self.path,)

    def word(self, row: int) -> np.ndarray:
        """The token ids of the word of a row."""
        begin = self.table.ends[row - 1] if row else 0
        return self.table.words[begin : self.table.ends[row]]

    def of(self, word: np.ndarray) -> np.ndarray:
        """The rows of the words similar to a word [at most `nearest`], the most similar first; none if it is unknown.

        Args:
            word: the ids of its tokens.
        """
        key = _hash(word)
        row = int(np.searchsorted(self.table.hashes, key))
        while row < len(self) and self.table.hashes[row] == key:
            if np.array_equal(self.word(row), word):
                similar = self.table.similar[row]
                return similar[similar >= 0]
            row += 1
        return np.zeros(0, np.int32)


def save_similar_words(
    path: Path, words: list[tuple[int, ...]], similar: np.ndarray, tokenizer: str, provenance: Mapping[str, Any]
) -> None:
    """Write the file, completely or not at all.

    Args:
        words: the ids of each word's tokens.
        similar: [words, nearest] their indices in that list, the most similar first, -1 after the last.
        tokenizer: the tokenizer's identity.
        provenance: the provenance of the table.
    """
    hashes = np.array([_hash(word) for word in words], np.int64)
    order = np.argsort(hashes, kind="stable")
    rows = np.empty(len(words), np.int32)
    rows[order] = np.arange(len(words))
    ordered = [words[place] for place in order]
    table = SimilarWordTable(
        np.array([token for word in ordered for token in word], np.int32),
        np.cumsum([len(word) for word in ordered], dtype=np.int64),
        hashes[order],
        np.where(similar < 0, -1, rows[similar])[order].astype(np.int32),
    )
    metadata = {"kind": KIND, "tokenizer": tokenizer, "provenance": json.dumps(provenance)}
    metadata["sha256"] = _checksum(table, metadata)
    with atomic(path) as file:
        file.write(save(table._asdict(), metadata))


def _read(path: Path) -> tuple[SimilarWordTable, dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("kind") != KIND or not metadata.keys() >= {*METADATA}:
                raise WorkbenchError(
                    f"{path} holds no similar words (its tensors: {', '.join(list(file.keys())[:5])}); "
                    "`workbench prepare similar-words` creates such files"
                )
            return SimilarWordTable(*(file.get_tensor(name).numpy() for name in SimilarWordTable._fields)), metadata
    except SafetensorError as error:
        raise WorkbenchError(f"{path} is no safetensors file, or is damaged ({error}); create it again") from error


def _is_whole(table: SimilarWordTable) -> bool:
    """Whether the arrays have valid types, sizes and references."""
    words, ends, hashes, similar = table
    count = len(ends)
    if any(array.dtype.kind != "i" for array in table) or [a.ndim for a in table] != [1, 1, 1, 2]:
        return False
    if not count or len(hashes) != count or len(similar) != count or int(ends[-1]) != len(words):
        return False
    return bool((np.diff(ends, prepend=0) > 0).all() and (similar >= -1).all() and (similar < count).all())


def _checksum(table: SimilarWordTable, metadata: Mapping[str, str]) -> str:
    """The SHA-256 checksum of the arrays and the metadata."""
    state = hashlib.sha256(json.dumps([metadata["tokenizer"], metadata["provenance"]]).encode())
    for name, array in table._asdict().items():
        state.update(f"{name} {array.dtype} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()


def _hash(word: np.ndarray | tuple[int, ...]) -> int:
    digest = hashlib.blake2b(np.asarray(word, np.int64).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)

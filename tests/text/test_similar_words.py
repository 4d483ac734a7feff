"""Similar words: word vectors by gensim, the nearest by brute force, and the file they are kept in."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import workbench.text.similar_words as module
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError
from workbench.text.similar_words import SimilarWords, save_similar_words
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.text.word_vectors import WordVectorOptions, neighbours, train_word_vectors

WORDS = [(7,), (8,), (3, 4), (4, 3), (9,)]
SIMILAR = np.array([[1, 4], [0, -1], [3, -1], [2, -1], [-1, -1]])


def kept(path: Path) -> SimilarWords:
    save_similar_words(path, WORDS, SIMILAR, "the tokenizer", {"dim": 5})
    return SimilarWords(path)


def near(table: SimilarWords, *word: int) -> list[tuple[int, ...]]:
    return [tuple(table.word(int(row)).tolist()) for row in table.of(np.array(word))]


def check(table: SimilarWords) -> None:
    assert len(table) == len(WORDS)
    assert near(table, 7) == [(8,), (9,)]
    assert near(table, 8) == [(7,)]
    assert near(table, 3, 4) == [(4, 3)]
    assert near(table, 4, 3) == [(3, 4)]
    for unknown in ((9,), (3,), (3, 4, 3), (100,)):
        assert near(table, *unknown) == []


def test_a_word_is_found_by_its_tokens(tmp_path: Path) -> None:
    with noted() as opened:
        table = kept(tmp_path / "near.safetensors")
    check(table)
    assert (table.tokenizer, table.provenance) == ("the tokenizer", {"dim": 5})
    assert list(opened["similar words"]) == [str(tmp_path / "near.safetensors")]
    check(pickle.loads(pickle.dumps(table)))


def test_words_of_one_hash_are_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_hash", lambda word: 1)
    check(kept(tmp_path / "near.safetensors"))


def test_other_files_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "near.safetensors"
    with pytest.raises(WorkbenchError, match=r"no file .*; `workbench prepare similar-words"):
        SimilarWords(path)
    save_file({"entity": np.zeros(3)}, path)
    with pytest.raises(WorkbenchError, match=r"holds no similar words \(its tensors: entity\)"):
        SimilarWords(path)
    path.write_bytes(b"nothing")
    with pytest.raises(WorkbenchError, match="no safetensors file, or is damaged"):
        SimilarWords(path)
    kept(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WorkbenchError, match="was changed or damaged"):
        SimilarWords(path)


@pytest.mark.parametrize(
    "change",
    [
        {"similar": np.full((5, 2), np.nan, np.float32)},
        {"similar": np.full((5, 2), 5, np.int32)},
        {"ends": np.array([1, 2, 4, 6, 9])},
        {"hashes": np.zeros(4, np.int64)},
    ],
)
def test_a_table_that_points_nowhere_is_refused(tmp_path: Path, change: dict[str, np.ndarray]) -> None:
    """Its checksum is right: a program of somebody wrote it."""
    path = tmp_path / "near.safetensors"
    table = kept(path).table._replace(**change)
    metadata = {"kind": "similar words", "tokenizer": "the tokenizer", "provenance": "{}"}
    metadata["sha256"] = module._checksum(table, metadata)
    save_file(table._asdict(), path, metadata)
    with pytest.raises(WorkbenchError, match="was changed or damaged"):
        SimilarWords(path)


def test_the_nearest_have_as_many_tokens_and_the_greatest_cosines() -> None:
    rng = np.random.default_rng(0)
    words = [tuple(rng.integers(0, 99, rng.integers(1, 4)).tolist()) for _ in range(600)]
    words.append((1,) * 9)  # alone with its length
    vectors = rng.normal(size=(601, 6)).astype(np.float32)
    found = neighbours(words, vectors, 4)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for i, row in enumerate(found):
        others = [j for j in range(601) if j != i and len(words[j]) == len(words[i])]
        best = sorted(others, key=lambda j: -float(unit[i] @ unit[j]))[:4]
        assert row[row >= 0].tolist() == best, i


def test_words_that_stand_in_the_same_places_are_similar() -> None:
    pytest.importorskip("gensim")
    rng = np.random.default_rng(1)
    kinds = [("oslo", "lima", "cairo"), ("eats", "drinks", "tastes")]
    frames = ["the town of {0} has a river and a bridge", "she {1} bread and soup at noon"]
    texts = [frames[i % 2].format(*(kind[rng.integers(3)] for kind in kinds)) for i in range(1500)]
    tokenizer = Tokenizer(train_tokenizer(texts, "wordpiece", 200))
    options = WordVectorOptions(dim=16, epochs=3, min_count=2)
    words, vectors = train_word_vectors(texts, tokenizer, options)
    again = train_word_vectors(texts, tokenizer, options)
    assert again[0] == words
    np.testing.assert_array_equal(again[1], vectors)
    places = {tokenizer.decode(word): place for place, word in enumerate(words)}
    assert set(kinds[0] + kinds[1]) <= places.keys()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [[places[word] for word in kind] for kind in kinds]
    for own, other in (rows, rows[::-1]):
        assert (unit[own] @ unit[own].T).min() > (unit[own] @ unit[other].T).max()
    with pytest.raises(WorkbenchError, match="no word occurs 5000 times"):
        train_word_vectors(texts, tokenizer, WordVectorOptions(dim=2, min_count=5000))

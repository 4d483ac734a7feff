"""A linear map of entity vectors into the space of a model's words (E-BERT, Poerner et al., arXiv 1911.03681, 3.1).

Vectors of words and of entities were trained together (Wikipedia2Vec). With x_w the vector of a word w and y_w the row
that the model's table has for it,

    W = argmin sum over the words w that both know of |x_w W - y_w|^2

and an entity with the vector x becomes x W.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kg.vectors.formats.rows import Row
from kg.vectors.vectors import load_vectors
from workbench.components.build_context import Identities, note, noted
from workbench.core.errors import WorkbenchError
from workbench.interop.weight_sources import note_weight_source, read_weight_source
from workbench.recipe.spec import InitFrom
from workbench.runs.data_record import MADE_FOR, NOTHING, START

TABLE = "embeddings.text.token.weight"
INSIDE = "##"
BEGINS = ("\u0120", "\u2581")
"""The prefix of a word's first piece in vocabularies of bytes (GPT-2, RoBERTa) and of SentencePiece."""


def note_space(place: str) -> None:
    """Note in the space of whose words the vectors of a file are."""
    mapped = load_vectors(place).provenance.get("mapped") or {}
    note(MADE_FOR, place, ", ".join(mapped.get("to", {}).get(START, {}).values()) or NOTHING)


@dataclass(frozen=True)
class TokenWords:
    """The words that are one token of a model, each with its row of the table [tokens, width]."""

    rows: Mapping[str, int]
    table: np.ndarray
    read: Identities


@dataclass(frozen=True)
class LinearMap:
    """`weight` [size, width], how many words it is fitted to, and the share of their variance that it explains."""

    weight: np.ndarray
    words: int
    explained: float


def words_of(place: Path) -> TokenWords:
    """The whole words of a run's or a released model's tokenizer.

    Raises:
        WorkbenchError: there are no such weights, they have no table of words, or no tokenizer.
    """
    entry = InitFrom(str(place))
    with noted() as read:
        note_weight_source(entry)
    source = read_weight_source(entry)
    if TABLE not in source.tensors or source.vocabulary is None:
        lacking = "tokenizer" if TABLE in source.tensors else "table of words (an embedding `token` of the stream text)"
        raise WorkbenchError(
            f"--map-to {place} has no {lacking}; name a run, or a Hugging Face checkpoint with its tokenizer"
        )
    return TokenWords(whole_words(source.vocabulary), source.tensors[TABLE].float().numpy(), read)


def whole_words(vocabulary: Mapping[str, int]) -> dict[str, int]:
    """The tokens that are a word from its first character on, spelt as it is. [MASK] and the like are none."""
    sign = next((sign for sign in BEGINS if any(token.startswith(sign) for token in vocabulary)), "")
    words = {token.removeprefix(sign): row for token, row in vocabulary.items() if token.startswith(sign)}
    return {
        word: row
        for word, row in words.items()
        if word and not word.startswith(INSIDE) and not (len(word) > 2 and word[0] + word[-1] in ("[]", "<>"))
    }


def fit(vectors: Iterable[Row], words: TokenWords, place: Path) -> LinearMap:
    """The map of least squares.

    Args:
        vectors: of words; others are passed over.

    Raises:
        WorkbenchError: fewer words in common than numbers in a vector: many maps would fit.
    """
    pairs = [(vector, words.rows[key]) for key, vector in vectors if key in words.rows]
    size = len(pairs[0][0]) if pairs else 1
    if len(pairs) < size:
        raise WorkbenchError(
            f"{place} and the model have {len(pairs)} words in common, where vectors of {size} numbers need as many at "
            "least; take vectors of words and entities that were trained together (Wikipedia2Vec), of words that are "
            "spelt as the model's (in small letters, if these are)"
        )
    x = np.stack([vector for vector, _ in pairs]).astype(np.float64)
    y = words.table[[row for _, row in pairs]].astype(np.float64)
    weight = np.linalg.lstsq(x, y, rcond=None)[0]
    left, whole = np.square(x @ weight - y).sum(), np.square(y - y.mean(0)).sum()
    return LinearMap(weight.astype(np.float32), len(pairs), float(1 - left / whole) if whole else 1.0)

"""Anisotropy and self-similarity of words by layer, of any network.

Ethayarajh (arXiv:1909.00512), sections 3.2 and 3.3. With f(x) the state of a use x of a word in a layer, and the n uses
of a word w each in another text,

    anisotropy       mean of cos(f(x), f(y)) over random uses x and y of words of two texts
    SelfSim(w)       sum over j, k != j of cos(f(x_j), f(x_k)) / (n^2 - n)
    adjusted         SelfSim(w) - anisotropy

The interval of an adjusted number is over words. It takes the anisotropy as known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.network_task import (
    NetworkTask,
    StretchedText,
    by_layer,
    in_words,
    states_of,
    texts_of,
    wholes,
)
from workbench.evaluation.analysis_options import AnisotropyScoring
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result

Use = tuple[int, int]
"""A text and a word of it, by their numbers."""
MOST_USES = 20


class Anisotropy(NetworkTask[AnisotropyScoring]):
    """Cosines of random words, and of the uses of a word."""

    scoring = AnisotropyScoring

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: AnisotropyScoring) -> Result:
        texts = in_words(texts_of(corpus, scoring.limit))
        pairs = _pairs(texts, scoring.pairs, corpus.name)
        repeated = _repeated(texts, scoring.contexts, scoring.words)
        rows, vectors, found = _vectors(run, texts, [*pairs, *repeated.values()], scoring.batch_size)
        kept = [pair for pair in pairs if all(found[rows[use]] for use in pair)]
        uses = {word: [rows[use] for use in of if found[rows[use]]] for word, of in repeated.items()}
        uses = {word: of for word, of in uses.items() if len(of) >= scoring.contexts}
        if not kept:
            raise WorkbenchError(f"corpus {corpus.name!r}: no word has a token; take texts that RUN's tokenizer knows")
        first, second = (vectors[:, [rows[pair[side]] for pair in kept]] for side in range(2))
        cosines = (first * second).sum(-1)
        similar = (
            np.array([_self_similarity(vectors[:, of]) for of in uses.values()]).reshape(len(uses), len(vectors)).T
        )
        lines: list[dict[str, Any]] = [
            {"key": texts[x[0]].key, "words": [texts[t].word(w) for t, w in (x, y)], "values": c.tolist()}
            for (x, y), c in zip(kept, cosines.T, strict=True)
        ]
        lines += [
            {"key": f"word {word}", "uses": len(of), "values": row.tolist()}
            for (word, of), row in zip(uses.items(), similar.T, strict=True)
        ]
        tallies = _tallies(cosines, similar)
        return Result(
            self.name,
            wholes(tallies),
            {"pairs": len(kept), "words": len(uses), "texts": len(texts)},
            variant=f"words of at least {scoring.contexts} texts, at most {MOST_USES} uses of each",
            predictions=EvaluationItems(lines, tallies),
        )


def _tallies(cosines: np.ndarray, similar: np.ndarray) -> dict[str, Any]:
    """Of cosines [layers, pairs] and self-similarities [layers, words]; the items are the pairs, then the words."""
    pairs, words = cosines.shape[1], similar.shape[1]
    of_words = np.arange(pairs + words) >= pairs
    tallies = by_layer("anisotropy", np.pad(cosines, ((0, 0), (0, words))), ~of_words)
    if words:
        tallies |= by_layer("self_similarity", np.pad(similar, ((0, 0), (pairs, 0))), of_words)
        adjusted = similar - cosines.mean(1, keepdims=True)
        tallies |= by_layer("adjusted_self_similarity", np.pad(adjusted, ((0, 0), (pairs, 0))), of_words)
    return tallies


def _pairs(texts: Sequence[StretchedText], count: int, corpus: str) -> list[tuple[Use, Use]]:
    """Pairs of random words of different texts."""
    uses = [(text, word) for text, of in enumerate(texts) for word in range(len(of.places))]
    if len({text for text, _ in uses}) < 2:
        raise WorkbenchError(f"corpus {corpus!r} has no two texts with words, so no words can be compared across texts")
    rng, found = generator("anisotropy", "pairs"), list[tuple[Use, Use]]()
    while len(found) < count:
        drawn = rng.integers(0, len(uses), (count, 2)).tolist()
        found += [(uses[x], uses[y]) for x, y in drawn if uses[x][0] != uses[y][0]]
    return found[:count]


def _repeated(texts: Sequence[StretchedText], contexts: int, count: int) -> dict[str, list[Use]]:
    """Random words of enough texts, each with its first use in some of them."""
    uses: defaultdict[str, dict[int, Use]] = defaultdict(dict)
    for number, text in enumerate(texts):
        for word in range(len(text.places)):
            uses[text.word(word)].setdefault(number, (number, word))
    words = [word for word, of in uses.items() if len(of) >= contexts]
    rng = generator("anisotropy", "words")
    chosen = sorted(rng.permutation(len(words))[:count].tolist())
    return {words[n]: [*uses[words[n]].values()][: max(MOST_USES, contexts)] for n in chosen}


def _vectors(
    run: EvaluatedRun, texts: Sequence[StretchedText], groups: Iterable[Iterable[Use]], size: int
) -> tuple[dict[Use, int], np.ndarray, np.ndarray]:
    """The row of each use, the unit vectors [layers + 1, uses, hidden_size], and whether each use has a token."""
    wanted = sorted({use for group in groups for use in group})
    of_text: defaultdict[int, list[int]] = defaultdict(list)
    for text, word in wanted:
        of_text[text].append(word)
    marked = [StretchedText(texts[text].sample, texts[text].places[words]) for text, words in of_text.items()]
    states, found = states_of(run, marked, size)
    return {use: row for row, use in enumerate(wanted)}, F.normalize(states, dim=-1).numpy(), found


def _self_similarity(vectors: np.ndarray) -> np.ndarray:
    """The mean cosine of different uses [layers], of unit vectors [layers, uses, hidden_size]."""
    count = vectors.shape[1]
    together = (vectors.sum(1) ** 2).sum(-1) - (vectors**2).sum((1, 2))
    found: np.ndarray = together / (count**2 - count)
    return found

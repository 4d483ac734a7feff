"""Documents and queries of a corpus as vectors of a network, and the best documents of each query."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.encoding import POOLS, Encoder
from workbench.evaluation.scoring.passes import sample_pass
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.sequence import Sample

QUERIES = 256  # whose scores are in memory at once
DEPTH = 1000  # documents of a query among which hard negatives are sought
ALIKE = 1e-6  # relative to the greatest score of a query: the rounding of a forward pass is no order


@dataclass(frozen=True)
class Texts:
    """Texts with their ids: that of the raw data (`_id` or `id`), or else the record's key; `untitled` are the texts
    without their titles."""

    ids: list[str]
    keys: list[str]
    texts: list[str]
    untitled: list[str]

    @classmethod
    def of(cls, corpus: Corpus, limit: int | None = None) -> Texts:
        """The texts of a corpus, each behind its title.

        Raises:
            WorkbenchError: a record has no text, or two have one id.
        """
        ids, keys, texts, untitled = [], [], [], []
        for sample in itertools.islice(_samples(corpus), limit):
            meta = sample.get("meta", {})
            if not isinstance(sample.get("text"), str):
                raise WorkbenchError(f"record {sample['key']!r} of {corpus.place} has no text; search reads texts")
            ids.append(str(next((meta[name] for name in ("_id", "id") if name in meta), sample["key"])))
            keys.append(str(sample["key"]))
            untitled.append(sample["text"])
            texts.append(" ".join(filter(None, (str(meta.get("title") or ""), sample["text"]))))
        if len(set(ids)) < len(ids):
            twice, _ = Counter(ids).most_common(1)[0]
            raise WorkbenchError(f"{corpus.place} has two records with the id {twice!r}; ids must be unique")
        return cls(ids, keys, texts, untitled)

    def like(self, passages: Iterable[str]) -> tuple[list[str], list[str]]:
        """The texts in the form of passages, with titles or without, as more of these passages are; and the other
        form."""
        known = set(passages)
        forms = (self.texts, self.untitled)
        with_titles, without = (len(known & {*form}) for form in forms)
        return forms if with_titles >= without else forms[::-1]


def _samples(corpus: Corpus) -> Iterator[Sample]:
    return (sample for group in sample_pass([corpus], size=256, unit=None) for sample in group)


class TextVectors:
    """Vectors of queries and of documents whose products rank the documents.

    Args:
        pool: as of `Encoder`. Vectors that no objective makes are normalised.
        size: texts in a batch.
    """

    def __init__(self, loaded: LoadedRun, network: str, pool: str | None, size: int) -> None:
        self.loaded, self.network, self.size = loaded, network, size
        self.queries = Encoder(loaded, "text", pool, network)
        self.pool = str(self.queries.pool)
        streams = getattr(dict(loaded.model.heads.items()).get(self.pool), "streams", {})
        self.documents = Encoder(loaded, streams.get("passage", "text"), self.pool, network)
        builder = self.queries.task.builder
        self.prefixes = tuple(str(getattr(builder, f"{side}_prefix", "")) for side in ("query", "passage"))

    def of_queries(self, texts: Iterable[str], prefix: str | None = None) -> Tensor:
        """[queries, size], float32.

        Args:
            prefix: before each; by default that of the run's builder.
        """
        return self._vectors(self.queries, texts, self.prefixes[0] if prefix is None else prefix)

    def of_documents(self, texts: Iterable[str], prefix: str | None = None) -> Tensor:
        """[documents, size], float32."""
        return self._vectors(self.documents, texts, self.prefixes[1] if prefix is None else prefix)

    def _vectors(self, encoder: Encoder, texts: Iterable[str], prefix: str) -> Tensor:
        samples = [
            {"key": str(number), "draw": (0, 0, number), "text": prefix + text} for number, text in enumerate(texts)
        ]
        groups = (samples[first : first + self.size] for first in range(0, len(samples), self.size))
        keys, vectors = encoder(groups, built=False)
        whole = vectors.new_zeros(len(samples), vectors.shape[1])  # a text without a token has the vector 0
        whole[torch.tensor([int(key) for key in keys])] = vectors
        return F.normalize(whole, dim=-1) if self.pool in POOLS else whole


def best_documents(queries: Tensor, documents: Tensor, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The numbers and the scores of the best documents of each query, the best first; of equal ones the first."""
    for block in queries.split(QUERIES):
        scores = block @ documents.T
        for row in scores.numpy():
            yield best_of(row, most)


def best_of(scores: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the greatest scores [documents] and these scores; of equal ones the first."""
    steps = np.round(scores / max(float(np.abs(scores).max()), 1e-30) / ALIKE)
    most = min(most, len(scores))
    last = -np.partition(-steps, most - 1)[most - 1]  # a partition alone would take any of those equal to it
    above, equal = np.flatnonzero(steps > last), np.flatnonzero(steps == last)
    chosen = np.concatenate([above, equal[: most - len(above)]])
    chosen = chosen[np.argsort(-steps[chosen], kind="stable")]
    return chosen, scores[chosen]


def hard_negatives(
    vectors: TextVectors,
    queries: list[str],
    passages: list[str],
    documents: list[str],
    *,
    most: int,
    skip: int = 0,
    below: float | None = None,
    other_form: list[str] | None = None,
) -> list[list[str]]:
    """The documents that are ranked first for each query, without its own passages.

    Args:
        passages: the right one of each query; those of equal queries are right for all of them.
        most: documents of a query.
        skip: so many of the first are left out.
        below: documents with more than this share of the right one's score are left out; of a negative score r those
            with more than r - (1 - below) |r|.
        other_form: the documents with or without titles, by which the right ones are recognised as well.
    """
    right: dict[str, set[str]] = {}
    for query, passage in zip(queries, passages, strict=True):
        right.setdefault(query, set()).add(passage)
    asked, own, read = vectors.of_queries(queries), vectors.of_documents(passages), vectors.of_documents(documents)
    limits = [math.inf] * len(queries)
    if below is not None:
        scores_of_right = (asked * own).sum(1)
        limits = (scores_of_right - (1 - below) * scores_of_right.abs()).tolist()
    depth = max(DEPTH, most + skip + max(map(len, right.values()), default=0))
    found = []
    for query, limit, (best, scores) in zip(queries, limits, best_documents(asked, read, depth), strict=True):
        wrong = [
            documents[number]
            for number, score in zip(best.tolist(), scores.tolist(), strict=True)
            if right[query].isdisjoint((documents[number], (other_form or documents)[number])) and score <= limit
        ]
        found.append(wrong[skip : skip + most])
    return found

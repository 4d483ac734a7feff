"""The stage that orders the candidate entities of mentions by a run that compares them with the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from kg.graph.store import GraphStore
from kg.linking.marked_mentions import described, marked
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.text_search import TextVectors
from workbench.interop.run_or_checkpoint import load
from workbench.objectives.contrast import Contrast
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class RankCandidates:
    """Orders the candidates of each mention of a text by a bi-encoder (BLINK, arXiv:1911.03814): the products of the
    vectors of the marked mention and of the entities' descriptions. The linker's scores of a mention stay, the greatest
    one first. Stores the checkpoint in `meta.linker.ranked_by`.

    Args:
        run: a run with the objective `contrast` of texts and passages.
        checkpoint: its identity.
        graph: the texts of the entities.
        most: so many candidates of a mention are kept.
    """

    run: str
    checkpoint: str
    graph: str
    most: int
    device: str = field(default="auto", compare=False)
    batch_size: ClassVar[int] = 64

    def __call__(self, sample: Sample) -> Sample:
        return self.batch([sample])[0]

    def batch(self, samples: list[Sample]) -> list[Sample]:
        """The samples with their candidates in the new order."""
        ranker = _ranker(self.run, self.graph)
        mentions = [
            (sample["text"], place, list(links))
            for sample in samples
            for place, links in groupby(sample.get("spans", ()), key=lambda link: (link[0], link[1]))
        ]
        ranked = iter(ranker.ranked(mentions))
        return [self._with(sample, ranked) for sample in samples]

    def _with(self, sample: Sample, ranked: Iterator[list[list[Any]]]) -> Sample:
        groups = [next(ranked) for _ in groupby(sample.get("spans", ()), key=lambda link: (link[0], link[1]))]
        meta = sample.get("meta", {})
        spans = [link for links in groups for link in links[: self.most]]
        return {**sample, "spans": spans, "meta": {**meta, "linker": self.noted(meta.get("linker", {}))}}

    def noted(self, linker: Mapping[str, Any]) -> dict[str, Any]:
        """The linker's identity with that of the run."""
        return {**linker, "candidates": self.most, "ranked_by": self.checkpoint}


class _Ranker:
    """A run and a graph, opened once in each process; the vectors of entities are kept."""

    def __init__(self, run: str, graph: str) -> None:
        self.graph = GraphStore.open(graph)
        self.vectors = comparing(run)
        self.known: dict[str, Tensor] = {}

    def ranked(self, mentions: list[tuple[str, tuple[int, int], list[list[Any]]]]) -> list[list[list[Any]]]:
        """The links of each mention in their new order."""
        several = [(text, place, links) for text, place, links in mentions if len(links) > 1]
        asked = iter(self.vectors.of_queries([marked(text, *place) for text, place, _ in several]) if several else ())
        self._read({link[2] for *_, links in several for link in links})
        return [self._ordered(next(asked), links) if len(links) > 1 else links for *_, links in mentions]

    def _read(self, entities: set[str]) -> None:
        new = sorted(entities - self.known.keys())
        if new:
            vectors = self.vectors.of_documents([described(self.graph, entity) for entity in new])
            self.known |= dict(zip(new, vectors, strict=True))

    def _ordered(self, asked: Tensor, links: list[list[Any]]) -> list[list[Any]]:
        products = torch.stack([self.known[link[2]] for link in links]) @ asked
        order = products.argsort(descending=True, stable=True).tolist()
        scores = sorted((link[3] for link in links), reverse=True)
        return [[*links[i][:3], score, *links[i][4:]] for i, score in zip(order, scores, strict=True)]


_ranker = lru_cache(maxsize=1)(_Ranker)


def comparing(run: str) -> TextVectors:
    """The vectors of a run that compares texts with passages.

    Raises:
        WorkbenchError: it has no such objective.
    """
    loaded = load(Path(run))
    for task in loaded.tasks.values():
        for placed in task.objectives:
            if isinstance(placed.objective, Contrast) and placed.objective.roles:
                return TextVectors(loaded, placed.network, placed.name, 64)
    raise WorkbenchError(
        f"{run} has no objective that compares texts with passages; allowed: a run with `contrast`, such as `workbench "
        "pretrain blink` makes of `prepare mentions`"
    )

"""The reader of a linked corpus that makes a record of each mention: its context, and its candidates as choices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kg.graph.store import GraphStore
from kg.linking.marked_mentions import described, marked
from kg.sequences.linked_mentions import are_candidates, mark_of
from pipelines.preparing.corpus_reader import CorpusReader
from pipelines.readers.reader import Drop, Record, RecordPlace
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sample

Stretch = tuple[int, int]


@dataclass(frozen=True)
class MentionReader(CorpusReader):
    """A record for each mention whose right entity is one of two or more candidates.

    `text` is the context with `marker` on both sides of the mention, `choices` are the candidates in the linker's
    order, each as its label and its description, and `answer` is the number of the right one.

    Args:
        graph: a graph store, or a triples corpus, that has the texts of the entities.
        most: so many candidates at most, the best.
        context: characters on either side of a mention, whole words.
    """

    graph: str
    most: int
    context: int
    marker: str

    def records_from(self, place: RecordPlace) -> Iterator[Record]:
        for record in super().records_from(place):
            sample = super().sample(record)
            for stretch in () if isinstance(sample, Drop) else _mentions(sample):
                # without a place: a reader that begins there would yield the first mention of the text
                yield record._replace(data=(*record.data, stretch), where=f"{record.where}, {stretch}", place=None)

    def sample(self, record: Record) -> Sample | Drop:
        *data, stretch = record.data
        sample = super().sample(record._replace(data=tuple(data)))
        if isinstance(sample, Drop):
            return sample
        if not are_candidates(sample):
            raise WorkbenchError(
                f"{record.where} has links without candidates; `workbench prepare link CORPUS --candidates 30 "
                "--supervise` finds candidates and marks the right ones"
            )
        candidates = _mentions(sample)[stretch][: self.most]
        right = [number for number, (_, mark) in enumerate(candidates) if mark]
        if len(candidates) < 2 or not right:
            return Drop("single candidate" if right else "mention without the right candidate")
        entities = [entity for entity, _ in candidates]
        start, end = stretch
        return {
            "key": f"{sample['key']}-{start}",
            "text": marked(sample["text"], start, end, self.context, self.marker),
            "choices": [described(graph_at(self.graph), entity) for entity in entities],
            "answer": right[0],
            "meta": {"entities": entities},
        }


def _mentions(sample: Sample) -> dict[Stretch, list[tuple[str, int | None]]]:
    """The candidates of each mention in their order, with their marks."""
    found: dict[Stretch, list[tuple[str, int | None]]] = {}
    for link in sample.get("spans", ()):
        found.setdefault((link[0], link[1]), []).append((link[2], mark_of(link)))
    return found


@lru_cache(maxsize=2)
def graph_at(place: str) -> GraphStore:
    """The graph, opened once in each process."""
    return GraphStore.open(place)

"""How much of a corpus is linked: what `prepare link` tells in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from workbench.corpora.corpus import Corpus
from workbench.corpora.schema import FIELDS, links_among

SAMPLED = 5_000
"""Records that are looked at, at most: evenly spread, as reading all of a large corpus takes as long as linking it."""


@dataclass(frozen=True)
class Coverage:
    """Counts over some records: those with a link, mentions, links (a mention may have several), entities, words."""

    records: int
    of: int
    linked: int
    mentions: int
    links: int
    entities: int
    words: int
    mean_score: float

    def table(self) -> Table:
        """For a person."""
        looked = f" (of {self.records:,} records, evenly spread)" if self.records < self.of else ""
        table = Table(title=f"Links{looked}", show_header=False)
        for name, value in (
            ("records with a link", f"{self.linked:,} ({100 * self.linked / max(self.records, 1):.1f} %)"),
            ("mentions", f"{self.mentions:,} ({100 * self.mentions / max(self.words, 1):.1f} per 100 words)"),
            ("entities per mention", f"{self.links / max(self.mentions, 1):.2f}"),
            ("different entities", f"{self.entities:,}"),
            ("mean score", f"{self.mean_score:.3f}"),
        ):
            table.add_row(name, value)
        return table


def coverage(corpus: Corpus) -> Coverage:
    """How much of a corpus's texts, or captions, is linked."""
    places = [(shard, record) for shard, info in enumerate(corpus.shards) for record in range(info.records)]
    chosen = places[:: -(-len(places) // SAMPLED) or 1]
    linked = mentions = links = words = 0
    total = 0.0
    entities: set[str] = set()
    for shard, record in chosen:
        found = 0
        for text, spans in _linked_texts(corpus.read(shard, record)):
            found += len(spans)
            mentions += len({(span[0], span[1]) for span in spans})
            words += len(text.split())
            entities.update(span[2] for span in spans)
            total += sum(span[3] if len(span) > 3 else 1.0 for span in spans)
        linked += found > 0
        links += found
    mean = total / links if links else 0.0
    return Coverage(len(chosen), len(places), linked, mentions, links, len(entities), words, mean)


def _linked_texts(sample: Mapping[str, Any]) -> Iterator[tuple[str, list[list[Any]]]]:
    """The texts of a sample that a linker reads, with their spans."""
    for links in links_among(FIELDS):
        text, spans = sample.get(links.spans_of or ""), sample.get(links.name)
        if text is None or spans is None:
            continue
        if isinstance(text, str):
            yield text, spans
        elif isinstance(text, dict):
            yield from ((one, spans.get(name, [])) for name, one in text.items())
        else:
            yield from zip(text, spans, strict=True)

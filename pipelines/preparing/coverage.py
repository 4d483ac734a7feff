"""How much of a corpus is linked or has a polarity, by the source of its texts: for `prepare link` and `sentiment`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from rich.table import Table

from kg.sequences.linked_mentions import RIGHT
from pipelines.stages.sentiment_tags import WORD
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.schema import FIELDS, SchemaField, links_among
from workbench.sequences.sequence import Sample

SAMPLED = 5_000
"""Most records to count, evenly spread: reading all of a large corpus takes as long as linking it."""
SOURCES = 5
"""Number of the largest sources that have their own column."""
TOTAL = "all"

Spans = Sequence[Sequence[Any]]


class TextLinker(Protocol):
    """Interface of the linking stage (`pipelines.stages.entity_links.LinkEntities`)."""

    def stretches(self, sample: Sample, links: SchemaField) -> Any:
        """The spans inside of which names are searched for; None: everywhere."""

    def found(self, text: str, inside: Any, min_score: float, candidates: int) -> Sequence[Sequence[Any]]:
        """The links in one text, [start, end, entity, score]."""

    def knows(self, entity: str) -> bool:
        """Whether the linker's graph has the entity: earlier links may be to others."""


@dataclass
class Coverage:
    """Counts over some records.

    A mention is a linked span, a name without a link (its score is too small), or a given span without a link; the
    latter two are NIL. A mention is ambiguous where the linker has several entities for it, and known where one of its
    links is to an entity of the linker. With `prepare link --supervise` the entity of a mention is given: it is counted
    whether the linker finds the mention again, and whether the entity is among the candidates.
    """

    records: int = 0
    linked_records: int = 0
    characters: int = 0
    linked: int = 0
    known: int = 0
    reported: int = 0
    right: int = 0
    nil: int = 0
    ambiguous: int = 0
    links: int = 0
    total_score: float = 0.0
    entities: set[str] = field(default_factory=set)

    @property
    def mentions(self) -> int:
        return self.linked + self.nil

    def add(self, texts: Sequence[tuple[str, Spans, Spans, Spans]], knows: Callable[[str], bool]) -> None:
        """Add one record: the spans of each text, the names that were found, and the spans that were given.

        Args:
            knows: whether the linker has an entity of this id.
        """
        self.records += 1
        self.linked_records += any(spans for _, spans, _, _ in texts)
        for text, spans, found, given in texts:
            self.characters += len(text)
            self.links += len(spans)
            self.linked += len({(span[0], span[1]) for span in spans})
            self.known += len({(span[0], span[1]) for span in spans if knows(span[2])})
            correct = {(span[0], span[1], span[4][RIGHT]) for span in spans if len(span) > 4 and RIGHT in span[4]}
            self.reported += len({place[:2] for place in correct})
            self.right += sum(bool(right) for *_, right in correct)
            self.entities.update(span[2] for span in spans)
            self.total_score += sum(span[3] if len(span) > 3 else 1.0 for span in spans)
            entities = Counter((link[0], link[1]) for link in found)
            self.ambiguous += sum(count > 1 for count in entities.values())
            asked = {(stretch[0], stretch[1]) for stretch in given} or entities
            linked = _characters(text, spans)
            self.nil += sum(linked[a] == linked[b] for a, b in asked)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Names and values for the table."""
        yield "records", f"{self.records:,}"
        yield "with a link", share(self.linked_records, self.records)
        yield "mentions per 1,000 characters", f"{1000 * self.mentions / max(self.characters, 1):.1f}"
        yield "mentions", f"{self.mentions:,}"
        yield "linked", share(self.linked, self.mentions)
        yield "linked to an entity that the linker knows", share(self.known, self.mentions)
        if self.reported:
            yield "given mentions found again", f"{self.reported:,}"
            yield "with the right entity among the candidates", share(self.right, self.reported)
        yield "NIL", share(self.nil, self.mentions)
        yield "ambiguous", share(self.ambiguous, self.mentions)
        yield "entities per mention", f"{self.links / max(self.linked, 1):.2f}"
        yield "different entities", f"{len(self.entities):,}"
        yield "mean score of a link (0 to 1)", f"{self.total_score / max(self.links, 1):.3f}"


@dataclass(frozen=True)
class Covered:
    """The counts of `looked` of `of` records: in total, and by source (`meta.source`), the largest first."""

    of: int
    all: Coverage
    by_source: dict[str, Coverage]

    def table(self) -> Table:
        """The table, with a column for each source if there are several."""
        columns = {TOTAL: self.all} | (dict([*self.by_source.items()][:SOURCES]) if len(self.by_source) > 1 else {})
        hidden = len(self.by_source) - SOURCES
        caption = f"{hidden:,} smaller sources are in {TOTAL!r} alone" if hidden > 0 else None
        table = Table("", *columns, title=f"Links{of_records(self.all.records, self.of)}", caption=caption)
        tables = [dict(counts.rows()) for counts in columns.values()]
        for name in tables[0]:
            table.add_row(name, *(values.get(name, "") for values in tables))
        return table


def coverage(corpus: Corpus, links: TextLinker) -> Covered:
    """Count how much of a corpus's texts or captions is linked.

    Args:
        links: the stage that linked them; it finds the names without a link, whatever their score.
    """
    total, by_source = Coverage(), dict[str, Coverage]()
    for sample in sampled(corpus):
        texts = [
            (text, spans, links.found(text, inside, 0.0, 2), inside or ())
            for text, spans, inside in _linked_texts(sample, links)
        ]
        source = str(sample.get("meta", {}).get("source", ""))
        for counts in (total, by_source.setdefault(source, Coverage())):
            counts.add(texts, links.knows)
    largest = sorted(by_source.items(), key=lambda item: -item[1].records)
    return Covered(corpus.records, total, dict(largest))


def polarities(corpus: Corpus) -> Table:
    """Count the words of a corpus that a lexicon tagged, and their polarities."""
    counts = Counter[str]()
    for sample in sampled(corpus):
        found = [name.partition(":")[2] for _, _, name in sample["tags"]]
        counts.update(found)
        felt = len(found) - found.count("neutral")
        words = sum(1 for _ in WORD.finditer(sample["text"]))
        counts.update(records=1, words=words, marked=len(found), felt=felt, moved=felt > 0)
    table = Table("", "", title=f"Polarities{of_records(counts['records'], corpus.records)}")
    table.add_row("records", f"{counts['records']:,}")
    table.add_row("with a polarity", share(counts["moved"], counts["records"]))
    for name, of, whole in (
        ("words", "words", ""),
        ("marked", "marked", "words"),
        ("of a polarity", "felt", "words"),
        ("positive", "positive", "felt"),
        ("negative", "negative", "felt"),
    ):
        table.add_row(name, share(counts[of], counts[whole]) if whole else f"{counts[of]:,}")
    return table


def sampled(corpus: Corpus) -> Iterator[Sample]:
    """Records of a corpus, evenly spread, at most `SAMPLED`."""
    places = [(shard, record) for shard, info in enumerate(corpus.shards) for record in range(info.records)]
    yield from (corpus.read(shard, record) for shard, record in places[:: -(-len(places) // SAMPLED) or 1])


def of_records(looked: int, all: int) -> str:
    """The note on counts over a sample of the records; "" if all were counted."""
    return f" (of {looked:,} records, evenly spread)" if looked < all else ""


def _characters(text: str, spans: Spans) -> np.ndarray:
    """How many characters before each place of a text have a link [characters + 1]."""
    edges = np.zeros(len(text) + 1, np.int64)
    for start, end, *_ in spans:
        edges[start] += 1
        edges[end] -= 1
    return np.append(0, (edges.cumsum()[:-1] > 0).cumsum())


def share(part: int, whole: int) -> str:
    """A count and its share of all, as text."""
    return f"{part:,} ({100 * part / max(whole, 1):.1f} %)"


def _linked_texts(sample: Sample, links: TextLinker) -> Iterator[tuple[str, Spans, Any]]:
    """The texts of a sample that a linker reads, with their spans and the given spans."""
    for found in links_among(FIELDS):
        text, spans = sample.get(found.spans_of or ""), sample.get(found.name)
        if text is None or spans is None:
            continue
        inside = links.stretches(sample, found)
        if isinstance(text, str):
            yield text, spans, inside
        elif isinstance(text, dict):
            yield from ((one, spans.get(name, []), inside) for name, one in text.items())
        else:
            yield from ((one, own, inside) for one, own in zip(text, spans, strict=True))

"""The stage that drops the facts of test sets from a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pipelines.readers.reader import LEFT_OUT
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.sequences.sequence import Sample

EXACT = "a fact of a test set"
PAIR = "another fact of a pair of a test set"
CLASSIFIED = "a fact of an entity whose class a test set asks for"
Fact = tuple[str, str, str]


@dataclass(frozen=True)
class WithoutFacts:
    """Drops triples whose head and tail are a pair of a test set, in either direction, with any relation, and all
    triples and types of the entities whose class a test set asks for.

    ERNIE-THU's authors did the former with FewRel. Drops are counted by reason: the fact of the test set itself, other
    facts of the same pair, and facts of such an entity.

    Args:
        corpora: the identity of each test set, by its path.
        facts: (head, relation, tail) of the texts with two marked mentions.
        entities: those of tagged chunks, and of mentions with types.
    """

    corpora: tuple[tuple[str, str], ...]
    facts: frozenset[Fact] = field(compare=False, repr=False)
    entities: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    pairs: frozenset[tuple[str, str]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        pairs = frozenset(pair for head, _, tail in self.facts for pair in ((head, tail), (tail, head)))
        object.__setattr__(self, "pairs", pairs)

    @classmethod
    def of(cls, corpora: Iterable[Corpus]) -> WithoutFacts:
        """The stage for corpora of linked texts: with two marked mentions and their relation, tags, or a typed mention.

        Raises:
            WorkbenchError: a corpus has no such text.
        """
        from kg.evaluation.contamination import classified_entities, labelled_pair  # imports torch

        sets, facts, entities = list[tuple[str, str]](), set[Fact](), set[str]()
        for corpus in corpora:
            asked = [each for each in map(labelled_pair, corpus) if each is not None]
            classified = set().union(*map(classified_entities, corpus))
            if not asked and not classified:
                raise WorkbenchError(
                    f"--without {corpus.place}: no text has a marked head and tail that are both linked, nor a linked "
                    "entity at a tagged chunk or a typed mention; needed: corpora of relations (FewRel, TACRED, ...), "
                    "tags or types that are linked to the graph's ids"
                )
            facts |= {(each.head, relation, each.tail) for each in asked for relation in each.relations or {""}}
            entities |= classified
            sets.append((str(corpus.place), corpus.identity))
        return cls(tuple(sets), frozenset(facts), frozenset(entities))

    def __call__(self, sample: Sample) -> Sample:
        head, kept, lost = str(sample["id"]), [], Counter[str]()
        if head in self.entities:
            sample = {**sample, "types": []}
        for fact in sample["triples"]:
            if head in self.entities:
                lost[CLASSIFIED] += 1
            elif (head, fact["tail"]) in self.pairs:
                lost[EXACT if (head, fact["relation"], fact["tail"]) in self.facts else PAIR] += 1
            else:
                kept.append(fact)
        if not lost:
            return sample
        meta: dict[str, Any] = sample.get("meta", {})
        return {**sample, "triples": kept, "meta": {**meta, LEFT_OUT: {**meta.get(LEFT_OUT, {}), **lost}}}

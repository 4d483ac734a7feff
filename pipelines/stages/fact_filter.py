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
Fact = tuple[str, str, str]


@dataclass(frozen=True)
class WithoutFacts:
    """Drops triples whose head and tail are a pair of a test set, in either direction, with any relation.

    ERNIE-THU's authors did so with FewRel. Drops are counted by reason: the fact of the test set itself, and other
    facts of the same pair.

    Args:
        corpora: the identity of each test set, by its path.
        facts: (head, relation, tail) of the texts.
    """

    corpora: tuple[tuple[str, str], ...]
    facts: frozenset[Fact] = field(compare=False, repr=False)
    pairs: frozenset[tuple[str, str]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        pairs = frozenset(pair for head, _, tail in self.facts for pair in ((head, tail), (tail, head)))
        object.__setattr__(self, "pairs", pairs)

    @classmethod
    def of(cls, corpora: Iterable[Corpus]) -> WithoutFacts:
        """The stage for corpora of texts with two marked, linked mentions and their relation.

        Raises:
            WorkbenchError: a corpus has no such text.
        """
        from kg.evaluation.contamination import labelled_pair  # imports torch

        sets, facts = list[tuple[str, str]](), set[Fact]()
        for corpus in corpora:
            asked = [each for each in map(labelled_pair, corpus) if each is not None]
            if not asked:
                raise WorkbenchError(
                    f"--without {corpus.place}: no text has a marked head and tail that are both linked; "
                    "needed: corpora of relations (FewRel, TACRED, ...) that are linked to the graph's ids"
                )
            facts |= {(each.head, relation, each.tail) for each in asked for relation in each.relations or {""}}
            sets.append((str(corpus.place), corpus.identity))
        return cls(tuple(sets), frozenset(facts))

    def __call__(self, sample: Sample) -> Sample:
        head, kept, lost = str(sample["id"]), [], Counter[str]()
        for fact in sample["triples"]:
            if (head, fact["tail"]) in self.pairs:
                lost[EXACT if (head, fact["relation"], fact["tail"]) in self.facts else PAIR] += 1
            else:
                kept.append(fact)
        if not lost:
            return sample
        meta: dict[str, Any] = sample.get("meta", {})
        return {**sample, "triples": kept, "meta": {**meta, LEFT_OUT: {**meta.get(LEFT_OUT, {}), **lost}}}

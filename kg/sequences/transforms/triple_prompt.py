"""Triples as a prompt: whole triples of the graph as text before the text, for networks of any kind.

    no knowledge    [CLS] Lyon lies by two rivers . [SEP]
    prompt          [CLS] Lyon country France . Lyon lies by two rivers . [SEP]

As in Baek et al., "Knowledge-Augmented Language Model Prompting" (arXiv 2306.04136), the triples are those of the
linked mentions, or those that are most like the text; here by BM25 over the whole graph, which needs no link. A decoder
reads them as well as an encoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from kg.sequences.branches import BranchOptions, Graph
from kg.sequences.linked_mentions import hidden
from kg.sequences.linked_transform import TripleTransform
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Location, Name, Seed, Word
from workbench.metrics.bm25 import Bm25
from workbench.sequences.entities import Entities
from workbench.sequences.rows import insert, recount
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

Triples = list[tuple[int, ...]]


class TriplePromptTransform(TripleTransform):
    """Triples of the graph as text before each text, behind its first special tokens (arXiv:2306.04136).

    The rows are `taken`: no objective labels them. Positions and ranks are counted anew, so that a text that is read
    from left to right sees them all. A mention in a stretch that `Sequence.mask_spans` names brings no triple, and the
    words of the stretch retrieve none.

    Args:
        graph: a triples corpus, or a graph store.
        max_length: rows of the longest sequence; whole triples from the last one on are left out where there would be
            more. By default the builder's.
        triples: which ones a mention brings; of retrieved ones, `most` for a text.
        by: the `links` of the text, or its `words`: the triples that BM25 ranks first. It reads every triple once, so
            the graph has to fit in memory as text.
        end: what stands after each triple.
        stream: of the text.
        control: the recipe's; `no-kg` writes nothing, `shuffled-kg` and `permuted-kg` write triples of a graph of false
            facts, `random-entities` those of another entity; under `mentions-only` a mask token stands for them.

    Raises:
        WorkbenchError: triples are drawn or come in, and retrieved by words.
    """

    def __init__(
        self,
        graph: Location | Graph,
        tokenizer: Tokenizer,
        max_length: Count,
        triples: BranchOptions | None = None,
        by: Literal["links", "words"] = "links",
        end: Name = ".",
        stream: Word = "text",
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__(graph, tokenizer, triples, control, seed, end)
        self.max_length, self.stream, self.by = max_length, stream, by
        self.most = (triples or BranchOptions()).most
        self.reads_spans = by == "links"
        if by == "words":
            if triples and (triples.sampling, triples.direction) != ("first", "out"):
                raise WorkbenchError("triples of a prompt by words are the best ones; leave sampling and direction out")
            self._index()

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        """The sequences with their prompts."""
        return [self._prompted(sequence, draws) for sequence in sequences]

    def known_entities(self) -> Entities | None:
        return super().known_entities() if self.by == "links" else None

    def _index(self) -> None:
        """Every triple of the graph as text, in an index of words."""
        maker, known = self.branches, super().known_entities()
        texts = [text for entity in known.ids for text in maker.spelt(entity)] if maker and known else []
        self.texts = list(dict.fromkeys(texts))
        self.ranking = Bm25(self.texts)

    def _prompted(self, given: Sequence, draws: Draws) -> Sequence:
        length = given.length(self.stream)
        if self.branches is None or not length:
            return given
        text = given.fields(self.stream)
        if "branch" in text:
            raise WorkbenchError("a prompt stands before kg.sentence_tree in the transforms: branches have positions")
        documents = text.get("doc", np.zeros(length, np.int64))
        free, before, ids = self.max_length - length, list[int](), list[int]()
        for document in dict.fromkeys(documents.tolist()):
            rows = np.flatnonzero(documents == document)
            plain = rows[~text["special"][rows]]
            for triple in self._triples(given, rows, draws) if len(plain) else ():
                if len(triple) > free:
                    self.dropped["triples over max_length"] += 1
                    continue
                free -= len(triple)
                self.used["triples"] += 1
                before += [int(plain[0])] * len(triple)
                ids += triple
        if not ids:
            return given
        sequence = replace(given, streams={name: dict(fields) for name, fields in given.streams.items()})
        insert(sequence, before, self.stream, input_ids=np.array(ids, np.int64))
        recount(sequence, self.stream)
        return sequence

    def _triples(self, sequence: Sequence, rows: np.ndarray, draws: Draws) -> Triples:
        """The token ids of the triples of a document, at these rows."""
        assert self.branches is not None
        if self.by == "words":
            return self._retrieved(sequence, rows)
        found: dict[tuple[int, ...], None] = {}
        rng = draws.of(sequence.draw) if self.drawn else None
        for span in sorted(sequence.spans_of(self.stream), key=lambda s: (s.start, -s.end)):
            if not rows[0] <= span.start <= rows[-1]:
                continue
            if hidden(span, sequence):
                self.dropped["mentions to be masked"] += 1
                continue
            branches = self.branches.of(span.entity, rng)
            self.dropped["triples without a name"] += branches.unnamed
            if not branches.ids:
                known = span.entity in self.branches.graph
                self.dropped["mentions without triples" if known else "entities not in the graph"] += 1
            found |= dict.fromkeys(branches.ids)
        return list(found)

    def _retrieved(self, sequence: Sequence, rows: np.ndarray) -> Triples:
        """Those whose words are most like the document's, without a stretch that is to be masked; the best first."""
        assert self.branches is not None
        text = sequence.fields(self.stream)
        shown = ~(text["special"] | text["taken"])
        for stretch in sequence.mask_spans:
            if stretch.stream == self.stream:
                shown[stretch.start : stretch.end] = False
        scores = self.ranking.scores(self.branches.tokenizer.decode(text["input_ids"][rows[shown[rows]]].tolist()))
        best = np.argsort(-scores, kind="stable")[: self.most]
        best = best[scores[best] > 0]
        if not len(best):
            self.dropped["texts that no triple is like"] += 1
        if self.branches.blank is not None:
            blank: Triples = [(self.branches.blank,)]
            return blank[: len(best)]
        return [self.branches.encoded(self.texts[number]) for number in best.tolist()]

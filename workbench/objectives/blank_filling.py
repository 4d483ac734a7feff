"""Autoregressive blank filling (GLM, Du et al., ACL 2022, arXiv:2103.10360, sections 2.1 and 2.2).

Spans of a text are cut out and a mask replaces each (part A); after it they are predicted, in random order (part B),
each from a start token on and until an end token:

    row        the  _  flows  past  _ [SEP]   [S] the bank  [S] old river
    position     0  1      2     3  4     5     4   4    4    1   1     1
    in blank     0  0      0     0  0     0     1   2    3    1   2     3
    writes                                    the bank [E]  old river [E]

    L = - sum over rows of part B of log p(next token | part A, the rows of part B up to this one)

The rows of part A see each other and none of part B. Lengths of spans are drawn from a Poisson distribution until
`rate` of the tokens are in spans, as in the published code without 0 (nothing would be cut out). Their places are drawn
uniformly among those where no span touches another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import MeanSpan, SomeShare, Word
from workbench.models.embeddings.blank_token import FIELD
from workbench.objectives._blanks import BlankContinuation, BlankFillings
from workbench.objectives._token_head import TokenHead
from workbench.pretraining.objective import BatchTargets, Continuation, Head, Objective
from workbench.sequences.segments import SentenceEnds
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Rows, Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder

LEAST = 0.5  # of a document: the least share of its one span (section 2.1)


class BlankFilling(Objective):
    """Autoregressive blank filling (GLM, Du et al., arXiv:2103.10360, section 2). Spans are cut out of a stream, and
    the model generates them behind it.

    Args:
        rate: the least share of the free tokens (not special, not labelled by an earlier objective) in spans.
        mean_span: the mean of the Poisson distribution of their lengths, in tokens.
        level: the kind of spans: a `span` of tokens, a whole `sentence`, or one stretch of the `document` with 50 % to
            100 % of its tokens (`rate` is for the others).
        stream: the stream of the tokens, whose embedding is `blank_token`.

    Raises:
        WorkbenchError: the tokenizer has no mask, or none for the beginning and the end; a sequence is not read in both
            directions, or packed; the network's embedding does not read the places in blanks.
    """

    predicts = "tokens"

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: SomeShare = 0.15,
        mean_span: MeanSpan = 3.0,
        level: Literal["span", "sentence", "document"] = "span",
        stream: Word = "text",
    ) -> None:
        self.rate, self.mean_span, self.level, self.stream = rate, mean_span, level, stream
        self.filling = BlankFillings(stream, tokenizer.id("mask"), tokenizer.id("bos"), tokenizer.id("eos"))
        self.sentences, self.mask = SentenceEnds(tokenizer), tokenizer.roles["mask"]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            _check(sequence, self.stream)
            rng = draws.of(sequence.draw)
            spans = self._spans(sequence, rng)
            rows, labels = self.filling([spans[i] for i in rng.permutation(len(spans))], sequence)
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "labels": labels}
        return {}

    def _spans(self, sequence: Sequence, rng: np.random.Generator) -> list[np.ndarray]:
        """The rows of each span that is cut out."""
        text = sequence.fields(self.stream)
        free = np.flatnonzero(selectable(text))
        if not len(free):
            return []
        if self.level == "sentence":
            return self._sentences(sequence, free, rng)
        if self.level == "document":
            lengths = [max(1, round(rng.uniform(LEAST, 1) * len(free)))]
        else:
            lengths = self._lengths(len(free), rng)
        return [piece for begin, end in placed(lengths, len(free), rng) for piece in together(free[begin:end])]

    def _lengths(self, tokens: int, rng: np.random.Generator) -> list[int]:
        """Lengths of spans that fit, without touching, in a text of this length."""
        lengths: list[int] = []
        while sum(lengths) < self.rate * tokens:
            room = tokens - sum(lengths) - len(lengths)
            if room < 1:
                break
            drawn = 0
            while not drawn:
                drawn = int(rng.poisson(self.mean_span))
            lengths.append(min(drawn, room))
        return lengths

    def _sentences(self, sequence: Sequence, free: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        text = sequence.fields(self.stream)
        found = [sentence for piece in together(free) for sentence in self.sentences.split(text, piece)]
        chosen: list[np.ndarray] = []
        for i in rng.permutation(len(found)).tolist():
            if sum(map(len, chosen)) >= self.rate * len(free):
                break
            chosen.append(found[i])
        return chosen

    def continuation(self, builder: Builder) -> Continuation:
        return BlankContinuation(self.filling, self.mask, len(builder.frame.end))

    def head(self, network: Network) -> Head:
        if FIELD not in getattr(dict(network.embeddings.items()).get(self.stream), "limits", {}):
            raise WorkbenchError(
                f"blank_filling writes the place of each row in its blank, which the embedding of {self.stream!r} does "
                f"not read; set `{self.stream}: {{embedding: blank_token, ...}}`"
            )
        return TokenHead(network, self.stream)


def placed(lengths: list[int], tokens: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The places of spans of these lengths among `tokens`, in this order; no two touch, and each such choice is equally
    likely."""
    begins = np.sort(rng.choice(tokens - sum(lengths) + 1, len(lengths), replace=False))
    begins += np.cumsum([0, *lengths[:-1]]).astype(np.int64)
    return [(int(begin), int(begin) + length) for begin, length in zip(begins, lengths, strict=True)]


def together(rows: np.ndarray) -> list[np.ndarray]:
    """Ascending rows in groups of neighbours."""
    return np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)


def _check(sequence: Sequence, stream: str) -> None:
    fields = sequence.fields(stream)
    if "doc" in fields:
        raise WorkbenchError(
            f"sequence {sequence.key!r} is packed from several documents, after which their spans would be mixed; use "
            "the builder document"
        )
    if "rank" in fields:
        raise WorkbenchError(
            f"sequence {sequence.key!r} is not read in both directions, or has blanks already; blank_filling itself "
            "sets the visibility: remove `visibility` from the builder, and give a second blank_filling another `view`"
        )

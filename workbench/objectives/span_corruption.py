"""Span corruption (T5, Raffel et al., JMLR 2020, arXiv:1910.10683, sections 3.1.4 and 3.3.4).

Spans of the text are left out, each with a sentinel in its place; a decoder writes what was left out:

    text     the <0> flows past <1> and bridges </s>
    target   <0> old river <1> harbours <2> </s>

    L = - sum over target tokens i of log p(y_i | y_1..y_{i-1}, text)

As in the released code, `rate` of the tokens are in `rate` x tokens / `mean_span` spans, whose lengths, and those of
what stands between them, are drawn uniformly among all that add up to it. The decoder begins with the padding token and
reads the target shifted by one. With tied tables its states are scaled by 1 / sqrt(width) before the table; T5 1.1 has
a matrix of its own and does not scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.keyed import Draws
from workbench.objectives._vocabulary import TokenLoss, token_table
from workbench.options.bounds import Number, PartShare, Word
from workbench.sequences.rows import NEW, recount, take
from workbench.sequences.sequence import Rows, Sequence, text_fields
from workbench.tasks.continuation import Continuation
from workbench.tasks.forward import Seen
from workbench.tasks.objective import BatchTargets, Head, LossOutput, Objective
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder

Length = Annotated[Number, Ge(1), Le(1000)]
Sentinels = Annotated[int, Ge(2), Le(2**16)]


class SpanCorruption(Objective):
    """Leaves spans of a stream out, and makes the decoder's stream, in which they are predicted.

    Args:
        rate: share of the free tokens that are left out (not special, not labelled by an earlier objective).
        mean_span: tokens of a span, on average.
        sentinels: how many there are; one less than spans can be left out. Their ids are those of `<extra_id_0>`,
            `<extra_id_1>`, ... where the tokenizer has these (T5's), and otherwise those that follow the tokenizer's,
            for which the tables of both streams need rows (`vocab_size`).
        stream: the encoder's stream.
        target: the decoder's stream.
        tied: whether tokens are predicted by the decoder's table, or by a matrix of the head's own (T5 1.1).

    Raises:
        WorkbenchError: the tokenizer has no `pad` or `eos` token.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: PartShare = 0.15,
        mean_span: Length = 3.0,
        sentinels: Sentinels = 100,
        stream: Word = "text",
        target: Word = "target",
        tied: bool = True,
    ) -> None:
        self.rate, self.mean_span = rate, mean_span
        self.stream, self.target, self.tied = stream, target, tied
        self.start, self.end = tokenizer.id("pad"), tokenizer.id("eos")
        self.sentinels = _sentinels(tokenizer, sentinels)

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            if "doc" in sequence.fields(self.stream):
                raise WorkbenchError(
                    f"sequence {sequence.key!r} is packed of several documents, which one target would mix; use the "
                    "builder document"
                )
            labels = self._leave_out(sequence, self._spans(sequence, draws.of(sequence.draw)))
            sequence.streams[self.target] = decoder_fields(np.array([self.start, *labels[:-1]]))
            sequence.targets[self.name] = {"rows": Rows(self.target, np.arange(len(labels))), "labels": labels}
        return {}

    def _spans(self, sequence: Sequence, rng: np.random.Generator) -> list[np.ndarray]:
        """Rows that are left out together, in order."""
        text = sequence.fields(self.stream)
        free = np.flatnonzero(~text["special"] & ~text["taken"])
        rows = free[noise(len(free), self.rate, self.mean_span, rng)]
        spans = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        return [span for span in spans if len(span)][: len(self.sentinels) - 1]

    def _leave_out(self, sequence: Sequence, spans: list[np.ndarray]) -> np.ndarray:
        """Put sentinels in the spans' places; what the decoder is to write, nothing where nothing is left out."""
        if not spans:
            return np.zeros(0, np.int64)
        ids = sequence.fields(self.stream)["input_ids"]
        rows = np.arange(len(ids))
        pieces: list[np.ndarray] = []
        for sentinel, span in zip(self.sentinels, spans, strict=False):
            pieces += [np.array([sentinel]), ids[span]]
        firsts, others = np.array([span[0] for span in spans]), np.concatenate([span[1:] for span in spans])
        rows[firsts] = NEW
        take(sequence, np.delete(rows, others), self.stream, like=firsts, input_ids=self.sentinels[: len(spans)])
        recount(sequence, self.stream)
        return np.concatenate([*pieces, [self.sentinels[len(spans)], self.end]])

    def continuation(self, builder: Builder) -> Continuation:
        return Target(self.target, self.start, self.end)

    def head(self, network: Network) -> Head:
        return SpanCorruptionHead(network, self.target, self.tied, int(self.sentinels.max()) + 1)


class Target(Continuation):
    """The decoder's stream begins with one token; the text is read as it is."""

    def __init__(self, stream: str, start: int, end: int) -> None:
        super().__init__(stream, end)
        self.start = start

    def prompt(self, sequence: Sequence) -> None:
        sequence.streams[self.stream] = decoder_fields(np.array([self.start]))


class SpanCorruptionHead(Head):
    """Tokens of the decoder's stream, by its table or a matrix.

    Raises:
        WorkbenchError: the table has no rows for the sentinels.
    """

    def __init__(self, network: Network, stream: str, tied: bool, least: int) -> None:
        super().__init__()
        vocab_size, width = token_table(network, stream).shape
        if vocab_size < least:
            raise WorkbenchError(
                f"the sentinels need ids up to {least - 1}, but the tables have {vocab_size} rows: say vocab_size: "
                f"{least} (or more) in the embeddings of text and {stream}"
            )
        self.stream = stream
        self.output = None if tied else nn.Linear(width, vocab_size, bias=False)
        self.loss = TokenLoss()

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> scores of the vocabulary [rows, vocab_size]."""
        if self.output is not None:
            scores: Tensor = self.output(rows)
            return scores
        return F.linear(rows * rows.shape[1] ** -0.5, token_table(network, self.stream))

    def forward(self, seen: Seen) -> LossOutput:
        logits = self.logits(seen.network, seen.states[self.stream][seen.targets["rows"]])
        return self.loss(logits, seen.targets["labels"])


def decoder_fields(ids: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of a decoder's stream, read from left to right; no later objective labels them."""
    fields = text_fields(ids)
    return {**fields, "rank": np.arange(len(ids), dtype=np.int64), "taken": np.ones(len(ids), np.bool_)}


def noise(length: int, rate: float, mean_span: float, rng: np.random.Generator) -> np.ndarray:
    """Which of so many tokens are left out [length]; the first never is, and of a single token none."""
    if length < 2:
        return np.zeros(length, np.bool_)
    count = min(max(round(length * rate), 1), length - 1)
    spans = min(max(round(count / mean_span), 1), count, length - count)
    lengths = np.stack([_parts(length - count, spans, rng), _parts(count, spans, rng)], 1).ravel()
    return np.repeat(np.tile([False, True], spans), lengths)


def _parts(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths of at least 1 that add up to the total, each choice of them as likely as any other [parts]."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _sentinels(tokenizer: Tokenizer, count: int) -> np.ndarray:
    spelled = [tokenizer.backend.token_to_id(f"<extra_id_{number}>") for number in range(count)]
    if None not in spelled:
        return np.array(spelled, np.int64)
    return tokenizer.vocab_size + np.arange(count, dtype=np.int64)

"""Span corruption (T5, Raffel et al., JMLR 2020, arXiv:1910.10683, sections 3.1.4 and 3.3.4).

Spans of the text are replaced with a sentinel each; a decoder predicts them:

    text     the <extra_id_0> flows past <extra_id_1> and bridges </s>
    target   <extra_id_0> old river <extra_id_1> harbours <extra_id_2> </s>

As in the published code, `rate` of the tokens are in `rate` x tokens / `mean_span` spans. Their lengths, and those of
the text between them, are drawn uniformly among all that add up to it. The decoder begins with the padding token. With
tied tables its states are scaled by 1 / sqrt(width) before the table; T5 1.1 has a matrix of its own and does not
scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Le

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import MeanSpan, PartShare, Word
from workbench.objectives._decoder import DecoderObjective, DecoderTarget
from workbench.objectives._token_head import PLAIN, HeadOptions, TokenHead, token_table
from workbench.pretraining.objective import Head
from workbench.sequences.rows import recount, replace_spans
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network

Sentinels = Annotated[int, Ge(2), Le(2**16)]


class SpanCorruption(DecoderObjective):
    """Span corruption (T5, Raffel et al., arXiv:1910.10683, section 3). Spans of the encoder's text are replaced by
    sentinels, and the decoder predicts them.

    Args:
        rate: share of the free tokens that are replaced (not special, not labelled by an earlier objective).
        mean_span: tokens of a span, on average.
        sentinels: their number; one less spans can be replaced. Their ids are those of `<extra_id_0>`, `<extra_id_1>`,
            ... where the tokenizer has these (T5's). Otherwise they follow the tokenizer's ids, and the tables of both
            streams need rows for them (`vocab_size`).
        stream: the encoder's stream.
        target: the decoder's stream.
        head: {tied, bias, transform} of the head; not tied in T5 1.1.

    Raises:
        WorkbenchError: the tokenizer has no `pad` or `eos` token.
    """

    predicts = "tokens"

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: PartShare = 0.15,
        mean_span: MeanSpan = 3.0,
        sentinels: Sentinels = 100,
        stream: Word = "text",
        target: Word = "target",
        head: HeadOptions = PLAIN,
    ) -> None:
        super().__init__(tokenizer, stream, target, start="pad", head=head)
        self.rate, self.mean_span = rate, mean_span
        self.tokens = tokenizer.vocab_size
        self.sentinels = _sentinels(tokenizer, sentinels)

    @property
    def own_tokens(self) -> Mapping[int, str]:
        return {int(token): f"<extra_id_{number}>" for number, token in enumerate(self.sentinels)}

    def noise(self, sequence: Sequence, rng: np.random.Generator) -> DecoderTarget:
        """Replace spans; the target is empty where nothing is replaced."""
        text = sequence.fields(self.stream)
        free = np.flatnonzero(selectable(text))
        rows = free[noise(len(free), self.rate, self.mean_span, rng)]
        spans = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        spans = [span for span in spans if len(span)][: len(self.sentinels) - 1]
        if not spans:
            return DecoderTarget(np.zeros(0, np.int64))
        sentinels = self.sentinels[: len(spans)]
        pieces = [
            part for token, span in zip(sentinels, spans, strict=True) for part in ([token], text["input_ids"][span])
        ]
        stretches = [(int(span[0]), int(span[-1]) + 1) for span in spans]
        replace_spans(sequence, stretches, self.stream, input_ids=sentinels)
        recount(sequence, self.stream)
        return DecoderTarget(np.concatenate([*pieces, [self.sentinels[len(spans)], self.end]]))

    def head(self, network: Network) -> Head:
        """The head, after a check of the tables.

        Raises:
            WorkbenchError: a table has no rows for the tokenizer's tokens or the sentinels.
        """
        least = max(self.tokens, int(self.sentinels.max()) + 1)
        for stream in (self.stream, self.target):
            rows = len(token_table(network, stream))
            if rows < least:
                raise WorkbenchError(
                    f"the tokenizer's {self.tokens:,} tokens and {len(self.sentinels)} sentinels need ids up to "
                    f"{least - 1}, but the table of the stream {stream!r} has {rows} rows. Give the embeddings of both "
                    f"streams rows for them, {self.stream}.vocab_size={least} and {self.target}.vocab_size={least} (or "
                    "more) under model.streams; or use a smaller tokenizer"
                )
        return TokenHead(network, self.target, self.head_options, scaled=self.head_options.tied)


def noise(length: int, rate: float, mean_span: float, rng: np.random.Generator) -> np.ndarray:
    """A mask of the tokens that are replaced [length]; never the first, and of a single token none."""
    if length < 2:
        return np.zeros(length, np.bool_)
    count = min(max(round(length * rate), 1), length - 1)
    spans = min(max(round(count / mean_span), 1), count, length - count)
    lengths = np.stack([_parts(length - count, spans, rng), _parts(count, spans, rng)], 1).ravel()
    return np.repeat(np.tile([False, True], spans), lengths)


def _parts(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths of at least 1 that add up to the total, each choice of them equally likely [parts]."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _sentinels(tokenizer: Tokenizer, count: int) -> np.ndarray:
    spelled = [tokenizer.backend.token_to_id(f"<extra_id_{number}>") for number in range(count)]
    if None not in spelled:
        return np.array(spelled, np.int64)
    return tokenizer.vocab_size + np.arange(count, dtype=np.int64)

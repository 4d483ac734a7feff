"""Span corruption (T5, Raffel et al., JMLR 2020, arXiv:1910.10683, sections 3.1.4 and 3.3.4).

Spans of the text are replaced with a sentinel each; a decoder predicts them:

    text     the <extra_id_0> flows past <extra_id_1> and bridges </s>
    target   <extra_id_0> old river <extra_id_1> harbours <extra_id_2> </s>

As in the published code, `rate` of the tokens are in `rate` x tokens / `mean_span` spans. Their lengths, and those of
the text between them, are drawn uniformly among all that add up to it. A masking strategy selects other spans: those of
entities are salient spans (Guu et al., arXiv:2002.08909, section 3.4). The decoder begins with the padding token. With
tied tables its states are scaled by 1 / sqrt(width) before the table; T5 1.1 has a matrix of its own and does not
scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Le

from workbench.components.building import build
from workbench.components.calls import call
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws, Numbers
from workbench.core.options.bounds import ComponentName, ComponentSpec, MeanSpan, PartShare, Word
from workbench.objectives._decoder import DecoderObjective, DecoderTarget
from workbench.objectives._token_head import PLAIN, HeadOptions, TokenHead, token_table
from workbench.pretraining.objective import Head
from workbench.sequences.maskings import merged
from workbench.sequences.rows import recount, replace_spans
from workbench.sequences.selection import RowGroups, Selection, ranges
from workbench.sequences.sequence import Sequence
from workbench.sequences.sequence_checks import GROUPS
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
        masking: the masking strategy that selects the spans instead, as for `mlm`.
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
        masking: ComponentName | ComponentSpec | None = None,
    ) -> None:
        super().__init__(tokenizer, stream, target, start="pad", head=head)
        if masking is not None:
            self.masking = build("masking", masking, "masking", tokenizer=tokenizer)
        self.rate, self.mean_span = rate, mean_span
        self.tokens = tokenizer.vocab_size
        self.sentinels = _sentinels(tokenizer, sentinels)

    @property
    def own_tokens(self) -> Mapping[int, str]:
        return {int(token): f"<extra_id_{number}>" for number, token in enumerate(self.sentinels)}

    def noise_all(self, sequences: list[Sequence], draws: Draws) -> list[DecoderTarget]:
        """Replace spans; the target is empty where nothing is replaced."""
        numbers = draws.numbers([sequence.draw for sequence in sequences])
        selection = Selection(sequences, self.stream, self.rate, numbers)
        if self.masking is not None:
            spans = merged(call(self.masking, "", GROUPS, sequences, self.stream, self.rate, numbers))
        else:
            free = selection.candidates
            rows = free[noise(selection.counted(free), self.rate, self.mean_span, numbers)]
            spans = merged(RowGroups(rows, np.ones(len(rows)), selection.owners[rows]))
        counts = np.bincount(spans.of, minlength=len(sequences))
        spans = spans.chosen(ranges(np.zeros_like(counts), counts) < len(self.sentinels) - 1)
        return list(map(self._replaced, sequences, spans.by_sequence(selection.starts)))

    def _replaced(self, sequence: Sequence, spans: list[np.ndarray]) -> DecoderTarget:
        """The target of a sequence, whose spans are replaced, in place."""
        if not spans:
            return DecoderTarget(np.zeros(0, np.int64))
        ids, sentinels = sequence.fields(self.stream)["input_ids"], self.sentinels[: len(spans)]
        pieces = [part for token, span in zip(sentinels, spans, strict=True) for part in ([token], ids[span])]
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


def noise(lengths: np.ndarray, rate: float, mean_span: float, numbers: Numbers) -> np.ndarray:
    """A mask of the tokens that are replaced in texts of these lengths [tokens of all]; never the first of a text, and
    of a single token none."""
    longer = lengths > 1
    count = np.where(longer, np.clip(np.round(lengths * rate), 1, lengths - 1), 0).astype(np.int64)
    rest = np.where(longer, lengths - count, 0)
    spans = np.clip(np.round(count / mean_span), longer, np.minimum(count, rest)).astype(np.int64)
    stretches = np.stack([_parts(rest, spans, numbers), _parts(count, spans, numbers)], 1).ravel()
    replaced = np.zeros(lengths.sum(), np.bool_)
    replaced[np.repeat(longer, lengths)] = np.repeat(np.tile([False, True], spans.sum()), stretches)
    return replaced


def _parts(totals: np.ndarray, parts: np.ndarray, numbers: Numbers) -> np.ndarray:
    """For each total so many lengths of at least 1 that add up to it, each choice of them equally likely
    [lengths of all]."""
    starts, gaps = np.cumsum(totals) - totals, np.maximum(totals - 1, 0)
    behind = ranges(starts + 1, gaps)
    drawn = np.lexsort((numbers.random(gaps), np.repeat(np.arange(len(gaps)), gaps)))
    begins = np.zeros(totals.sum(), np.bool_)
    begins[starts[totals > 0]] = True
    begins[behind[drawn[ranges(np.zeros_like(gaps), gaps) < np.repeat(parts - 1, gaps)]]] = True
    return np.diff(np.flatnonzero(begins), append=len(begins))


def _sentinels(tokenizer: Tokenizer, count: int) -> np.ndarray:
    spelled = [tokenizer.backend.token_to_id(f"<extra_id_{number}>") for number in range(count)]
    if None not in spelled:
        return np.array(spelled, np.int64)
    return tokenizer.vocab_size + np.arange(count, dtype=np.int64)

"""Masked language modelling (BERT, arXiv:1810.04805, section 3.1).

    L = - sum over selected tokens i of log softmax(E^T t(h_i) + b)[x_i],   t(h) = LayerNorm(gelu(W h + c))

E is the token embedding of the network. `workbench.sequences.replacement` replaces selected tokens; the head is in
`_token_head`. The rate may change linearly in the course of the run (Ankner et al., arXiv:2305.15096: from 0.3 to
0.15). With `soft`, the predictions of a moving average of network and head are a share of the targets (ALBEF).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import nn

from workbench.components.building import build
from workbench.components.calls import call
from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Count, SomeShare, Word
from workbench.objectives._text import TextContinuation
from workbench.objectives._token_head import BERT, BertHeadOptions, HeadOptions, TokenHead
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import (
    BatchTargets,
    Continuation,
    Head,
    LossOutput,
    Objective,
    SoftTargets,
    soft_cross_entropy,
)
from workbench.sequences.protocols import Masking
from workbench.sequences.replacement import USUAL, ReplacementOptions, TokenReplacement
from workbench.sequences.sequence import Rows, Sequence
from workbench.sequences.sequence_checks import GROUPS
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder


class Mlm(Objective):
    """Masked language modelling (BERT, arXiv:1810.04805, section 3.1): the masked tokens of a stream are predicted.

    Args:
        rate: share of the free tokens to select (not special, not labelled by an earlier objective, not injected).
        final_rate: the share at the end of the run, which it approaches linearly, and in held-out passes; by default
            `rate`.
        masking: the masking strategy: token, whole_word, ngram, span, entity, field, rare, or an import path.
        replace: {mask, random, per, similar}: the replacement of the selected tokens.
        max_predictions: the most labels of a sequence.
        soft: {follower, share, ramp} of soft targets (`workbench.pretraining.objective`); by default the labels alone.
        stream: the stream of the tokens.
        head: {tied, bias, transform} of the head, where a pretrained model has another than BERT's.
        codes: where the rows of the stream are not tokens of the tokenizer, but codes (VideoBERT's visual tokens),
            their number; the mask is the code after them.
    """

    name = "mlm"
    predicts: Literal["tokens", "numbers"] = "tokens"

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: SomeShare = 0.15,
        masking: ComponentName | ComponentSpec = "token",
        replace: ReplacementOptions = USUAL,
        max_predictions: Count | None = None,
        soft: SoftTargets | None = None,
        final_rate: SomeShare | None = None,
        stream: Word = "text",
        head: BertHeadOptions = BERT,
        codes: Count | None = None,
    ) -> None:
        self.rate, self.replace = rate, TokenReplacement(tokenizer, replace, codes)
        if codes is not None:
            self.predicts = "numbers"
        self.final_rate = rate if final_rate is None else final_rate
        self.max_predictions = max_predictions
        self.soft = soft
        self.stream = stream
        self.head_options = head
        self.masking: Masking = build("masking", masking, "masking", tokenizer=tokenizer)

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        rate = self.rate + draws.progress * (self.final_rate - self.rate)
        numbers = draws.numbers([sequence.draw for sequence in sequences])
        groups = call(self.masking, "", GROUPS, sequences, self.stream, rate, numbers)
        replaced = self.replace(sequences, self.stream, groups, numbers, self.max_predictions)
        for sequence, (rows, labels) in zip(sequences, replaced, strict=True):
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "labels": labels}
        return {}

    def continuation(self, builder: Builder) -> Continuation | None:
        """Where segments are (also) read after a prefix, a mask at the next token's place predicts it (UniLM)."""
        able = "prefix" in builder.frame.visibilities
        return TextContinuation(builder.frame, self.stream, "prefix", self.replace.mask_id) if able else None

    def head(self, network: Network) -> Head:
        return MlmHead(network, self.stream, self.head_options, self.soft)


class MlmHead(TokenHead):
    """BERT's prediction head with its predictions as outputs; it may have soft targets."""

    def __init__(
        self,
        network: Network,
        stream: str = "text",
        options: HeadOptions = BERT,
        soft: SoftTargets | None = None,
    ) -> None:
        super().__init__(network, stream, options)
        self.soft = soft

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Outputs: `rows` and `labels` unchanged, and `logits` [rows, vocab_size]."""
        targets = inputs.targets
        logits = self.logits(inputs.network, inputs.states[self.stream][targets["rows"]])
        output = self.loss(logits, targets["labels"])._replace(outputs={**targets, "logits": logits})
        if self.soft is None:
            return output
        slow, read = inputs.averaged(self.soft.follower), inputs.read(network=self.soft.follower)
        assert isinstance(slow, MlmHead)
        follower_logits = slow.logits(read.network, read.states[self.stream][targets["rows"]])
        share = self.soft.share_at(inputs.progress)
        return output._replace(loss=soft_cross_entropy(logits, targets["labels"], follower_logits, share))

    def averaged(self) -> nn.Module | None:
        return None if self.soft is None else self

"""Masked language modelling (BERT, arXiv:1810.04805, section 3.1).

    L = - sum over selected tokens i of log softmax(E^T t(h_i) + b)[x_i],   t(h) = LayerNorm(gelu(W h + c))

E is the token embedding of the network. Of the selected tokens 80 % become [MASK], 10 % a random ordinary token, 10 %
stay; the draw is per token (BERT), per word or per group (SpanBERT's paper: per span). Or the 80 % become a similar
word (MacBERT, arXiv:2004.13922: masked language modelling as correction). The rate may go from one number to another
in the course of the run (Ankner et al., arXiv:2305.15096: from 0.3 to 0.15). With `soft`, what a moving average of
network and head predicts is a share of the targets (ALBEF).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.keyed import Draws
from workbench.models.blocks import ACTIVATIONS, Ungated
from workbench.objectives._text import TextContinuation
from workbench.objectives._vocabulary import TokenLoss, to_width, token_table
from workbench.options.bounds import Count, Epsilon, Location, PartName, PartSpec, Share, SomeShare, Word
from workbench.parts.building import build
from workbench.parts.calls import call
from workbench.sequences.protocols import Policy
from workbench.sequences.replacing import Replacing, begins_word
from workbench.sequences.returns import GROUPS
from workbench.sequences.sequence import Rows, Sequence
from workbench.tasks.continuation import Continuation
from workbench.tasks.forward import Seen
from workbench.tasks.objective import BatchTargets, Head, LossOutput, Objective
from workbench.tasks.soft_targets import SoftTargets, soft_cross_entropy
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder


class Mlm(Objective):
    """Predicts masked tokens of a stream.

    Args:
        rate: share of the free tokens to select (not special, not labelled by an earlier objective, not injected).
        final_rate: the share at the end of the run, to which it goes evenly, and in held-out passes; by default `rate`.
        policy: what is selected together: token, whole_word, ngram, span, entity, field, rare, or an import path.
        mask, random: shares of the selected that become [MASK] and a random token; the rest stays.
        replace: whether [MASK]/random/stay is drawn per `token`, per `word` or per `group` of the policy.
        similar: file of similar words (`prepare similar-words`), of which each word becomes one instead of [MASK]; one
            that has none, or is selected in part, becomes random tokens. For `replace: word`.
        max_predictions: at most so many labels per sequence.
        soft: {follower, share, ramp} of soft targets (`workbench.tasks.soft_targets`); by default the labels alone.
        stream: the stream of the tokens.
        activation, norm_eps, bias: of the head, where a release has others than BERT; `bias` of its linear map and its
            norm, the words' own biases stay.
        transform: whether the head has t in front of the table, or states are held against the table as they are (XLM).
    """

    name = "mlm"
    predicts = "tokens"

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: SomeShare = 0.15,
        policy: PartName | PartSpec = "token",
        mask: Share = 0.8,
        random: Share = 0.1,
        replace: Literal["token", "word", "group"] = "token",
        similar: Location | None = None,
        max_predictions: Count | None = None,
        soft: SoftTargets | None = None,
        final_rate: SomeShare | None = None,
        stream: Word = "text",
        activation: Ungated = "gelu",
        norm_eps: Epsilon = 1e-12,
        bias: bool = True,
        transform: bool = True,
    ) -> None:
        if similar is not None and replace != "word":
            raise WorkbenchError(f"similar words with replace = {replace!r}; allowed: replace = 'word'")
        self.rate, self.replace = rate, Replacing(tokenizer, mask, random, similar)
        self.final_rate = rate if final_rate is None else final_rate
        self.per = replace
        self.max_predictions = max_predictions
        self.soft = soft
        self.stream = stream
        self.activation: Ungated = activation
        self.norm_eps = norm_eps
        self.bias = bias
        self.transform = transform
        self.policy: Policy = build("policy", policy, "policy", tokenizer=tokenizer)
        self.reads, self.reads_spans = self.policy.reads, self.policy.reads_spans

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        rate = self.rate + draws.progress * (self.final_rate - self.rate)
        for sequence in sequences:
            rng = draws.of(sequence.draw)
            groups = call(self.policy, "", GROUPS, sequence, self.stream, rate, rng)
            rows = self._corrupt(sequence, groups, rng)
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows[0]), "labels": rows[1]}
        return {}

    def _corrupt(
        self, sequence: Sequence, groups: list[np.ndarray], rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replaces in place; the selected rows, ascending, and their original ids."""
        if not groups:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        text = sequence.fields(self.stream)
        rows = np.concatenate(groups)
        if self.per == "token":
            draw = rng.random(len(rows))
        elif self.per == "word":
            number = np.cumsum(begins_word(text, rows)) - 1
            draw = rng.random(number[-1] + 1)[number]
        else:
            draw = np.repeat(rng.random(len(groups)), [len(group) for group in groups])
        rows, draw = rows[: self.max_predictions], draw[: self.max_predictions]
        order = np.argsort(rows)
        rows, draw = rows[order], draw[order]
        labels = text["input_ids"][rows].copy()
        self.replace(text, rows, draw, rng)
        return rows, labels

    def continuation(self, builder: Builder) -> Continuation | None:
        """Where segments are (also) read behind a prefix, a mask in the next token's place is asked for it (UniLM)."""
        able = "prefix" in builder.frame.visibilities
        return TextContinuation(builder.frame, self.stream, "prefix", self.replace.mask_id) if able else None

    def head(self, network: Network) -> Head:
        options = (self.activation, self.norm_eps, self.bias, self.transform)
        return MlmHead(network, self.stream, self.soft, *options)


class MlmHead(Head):
    """BERT's prediction head: dense + activation + LayerNorm, then the tied token embedding plus a bias.

    Without `transform` the latter two alone, and a projection before them where the embedding is of another width.
    """

    by_token = ("bias",)

    def __init__(
        self,
        network: Network,
        stream: str = "text",
        soft: SoftTargets | None = None,
        activation: Ungated = "gelu",
        norm_eps: float = 1e-12,
        bias: bool = True,
        transform: bool = True,
    ) -> None:
        super().__init__()
        self.stream, self.soft = stream, soft
        table = token_table(network, stream)
        self.transformed = transform
        if transform:
            self.dense = nn.Linear(network.sizes[stream], table.shape[1], bias=bias)
            self.norm = nn.LayerNorm(table.shape[1], eps=norm_eps, bias=bias)
            self.activation = ACTIVATIONS[activation]
        else:
            self.projection = to_width(network.sizes[stream], table.shape[1])
        self.bias = nn.Parameter(table.new_zeros(len(table)))
        self.loss = TokenLoss()

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> scores of the vocabulary [rows, vocab_size]."""
        rows = self.norm(self.activation(self.dense(rows))) if self.transformed else self.projection(rows)
        return F.linear(rows, token_table(network, self.stream), self.bias)

    def forward(self, seen: Seen) -> LossOutput:
        """Hands on `rows` and `labels` as they are, and `logits` [rows, vocab_size]."""
        targets = seen.targets
        logits = self.logits(seen.network, seen.states[self.stream][targets["rows"]])
        output = self.loss(logits, targets["labels"])._replace(made={**targets, "logits": logits})
        if self.soft is None:
            return output
        slow, read = seen.averaged(self.soft.follower), seen.read(network=self.soft.follower)
        assert isinstance(slow, MlmHead)
        taught = slow.logits(read.network, read.states[self.stream][targets["rows"]])
        share = self.soft.share_at(seen.progress)
        return output._replace(loss=soft_cross_entropy(logits, targets["labels"], taught, share))

    def averaged(self) -> nn.Module | None:
        return None if self.soft is None else self

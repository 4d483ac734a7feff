"""The span boundary objective (SpanBERT, arXiv:1907.10529, section 3.2).

Each token of a masked span s..e is predicted from the tokens on both sides of the span and its place in it:

    y_i = f([x_{s-1} ; x_{e+1} ; p_{i-s+1}]),   f = two times LayerNorm(gelu(W h + b))
    L = - sum over tokens i of the spans of log softmax(E^T y_i + b)[x_i]

E is the token embedding of the network. As in the published code, masked tokens that are neighbours are one span; a
span at an edge of the text (next to a special token) has no boundary and is left out, and so are the tokens of a span
beyond `max_span`. The place vectors have 200 numbers in the paper. The paper adds this loss to that of masked words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Epsilon, Size, Word
from workbench.objectives._token_head import TokenLoss, token_table
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Rows, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class Sbo(Objective):
    """Span boundary objective (SpanBERT, arXiv:1907.10529, section 3.2): the tokens of masked spans are predicted from
    the tokens around them.

    Args:
        of: the masked-language-modelling objective of the same task and view that masks the spans.
        max_span: the most predicted tokens of a span, from its left end.
        place_size: numbers of a place vector.
        stream: the stream of the tokens, which is that objective's too.
        norm_eps: of the head, where a pretrained model has another one than BERT.
    """

    predicts = "tokens"

    def __init__(
        self,
        of: Word = "mlm",
        max_span: Count = 20,
        place_size: Size = 200,
        stream: Word = "text",
        norm_eps: Epsilon = 1e-12,
    ) -> None:
        self.of, self.stream = of, stream
        self.max_span, self.place_size, self.norm_eps = max_span, place_size, norm_eps
        self.after = (of,)

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            masked, labels = self._masked(sequence)
            special = sequence.fields(self.stream)["special"]
            parts = np.split(masked, np.flatnonzero(np.diff(masked) > 1) + 1) if len(masked) else []
            spans = [span for span in parts if not _at_edge(span, special)]
            sizes = [min(len(span), self.max_span) for span in spans]
            rows = np.concatenate([masked[:0], *(span[:size] for span, size in zip(spans, sizes, strict=True))])
            ends = np.array([(span[0] - 1, span[-1] + 1) for span in spans], np.int64).reshape(-1, 2)
            left, right = np.repeat(ends, sizes, axis=0).T
            sequence.targets[self.name] = {
                "rows": Rows(self.stream, rows),
                "left": Rows(self.stream, left),
                "right": Rows(self.stream, right),
                "labels": labels[np.searchsorted(masked, rows)],
            }
        return {}

    def _masked(self, sequence: Sequence) -> tuple[np.ndarray, np.ndarray]:
        """The rows that were masked, ascending, and their original tokens."""
        targets = sequence.targets.get(self.of, {})
        rows = targets.get("rows")
        if not isinstance(rows, Rows) or rows.stream != self.stream:
            raise WorkbenchError(
                f"{self.name} predicts the spans of {self.stream!r} that the objective {self.of!r} masks, which has "
                f"masked none in this view; give both the same `view` and `stream`, and `of` its name"
            )
        return rows.index, np.asarray(targets["labels"])

    def head(self, network: Network) -> Head:
        return SboHead(network, self.stream, self.max_span, self.place_size, self.norm_eps)


class SboHead(Head):
    """Two layers on both sides of a span and a place in it, then the tied token embedding plus a bias."""

    by_token = ("bias",)

    def __init__(self, network: Network, stream: str, max_span: int, place_size: int, norm_eps: float = 1e-12) -> None:
        super().__init__()
        self.stream = stream
        size = network.sizes[stream]
        vocab_size, width = token_table(network, stream).shape
        self.place = nn.Embedding(max_span, place_size)
        self.first = nn.Linear(2 * size + place_size, size)
        self.first_norm = nn.LayerNorm(size, eps=norm_eps)
        self.second = nn.Linear(size, width)
        self.second_norm = nn.LayerNorm(width, eps=norm_eps)
        self.bias = nn.Parameter(self.first.weight.new_zeros(vocab_size))
        self.loss = TokenLoss()

    def logits(self, network: Network, left: Tensor, right: Tensor, places: Tensor) -> Tensor:
        """States on both sides [tokens, hidden_size], places [tokens] -> scores [tokens, vocab_size]."""
        around = torch.cat([left, right, self.place(places)], -1)
        rows = self.first_norm(F.gelu(self.first(around)))
        rows = self.second_norm(F.gelu(self.second(rows)))
        return F.linear(rows, token_table(network, self.stream), self.bias)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        targets, states = inputs.targets, inputs.states[self.stream]
        left, right = targets["left"], targets["right"]
        logits = self.logits(inputs.network, states[left], states[right], targets["rows"] - left - 1)
        return self.loss(logits, targets["labels"])


def _at_edge(span: np.ndarray, special: np.ndarray) -> bool:
    """Whether a token is missing on one of its sides."""
    before, behind = span[0] - 1, span[-1] + 1
    return bool(before < 0 or behind >= len(special) or special[before] or special[behind])

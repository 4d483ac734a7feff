"""LSTM over each sequence of a stream (Hochreiter and Schmidhuber, Neural Computation 9(8), 1997), with the dropout of
AWD-LSTM (Merity et al., arXiv:1708.02182).

    i, f, g, o = W_ih x_t + b_ih + M W_hh h_{t-1} + b_hh
    c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
    h_t = sigmoid(o) tanh(c_t)

M is DropConnect (section 2 of AWD-LSTM): in training each number of W_hh is 0 with the probability `weight_drop`, for
all rows of a micro-batch alike.

With `cells` an LSTM has more cells than it hands on: h_t = W (sigmoid(o) tanh(c_t)) (Sak et al., arXiv:1402.1128).

A layer with a KV cache keeps h and c behind the last row of each sequence. So it reads a text in pieces as it reads the
whole, in generation and with the `memory` of a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Dropout, Size, Word
from workbench.models.compilation import uncompiled
from workbench.models.context import Context
from workbench.models.dropout import dropout
from workbench.models.layout import Layout
from workbench.sequences.transfer import integers_on_device


class LstmLayer(nn.Module):
    """LSTM over the rows of each sequence of a stream, with the dropout of AWD-LSTM (Merity et al., arXiv:1708.02182).
    A sequence begins with the state 0, or with that behind its earlier rows in a KV cache. Other streams pass through.

    Args:
        stream: the stream's name.
        sizes: hidden size of every stream (given by the network).
        depth: number of LSTMs, each of which reads the rows of the one before.
        intermediate_size: width of all but the last one; by default the stream's.
        cells: width of the states c, where h is a projection of them (ELMo).
        direction: in which it reads the rows; with `both`, each direction has half of each width.
        weight_drop: probability with which a number of the matrices from state to state is 0 in training.
        inner_dropout: of the rows between two LSTMs.
        dropout: of the last rows.
        dropout_per: whether each `row` has a dropout mask of its own, or each `sequence` one for all of its rows.

    Raises:
        WorkbenchError: a width of two directions is odd, `cells` are not more than each h, or one LSTM has options of
            those before the last. In a forward: a text that is read from left to right is to be read backward, or one
            with earlier rows in a KV cache; or as `check_in_order`.
    """

    def __init__(
        self,
        stream: Word,
        sizes: dict[str, int],
        depth: Count = 1,
        intermediate_size: Size | None = None,
        cells: Size | None = None,
        direction: Literal["forward", "backward", "both"] = "forward",
        weight_drop: Dropout = 0.0,
        inner_dropout: Dropout = 0.0,
        dropout: Dropout = 0.0,
        dropout_per: Literal["row", "sequence"] = "row",
    ) -> None:
        super().__init__()
        if depth == 1 and (intermediate_size is not None or inner_dropout):
            raise WorkbenchError(
                f"intermediate_size = {intermediate_size}, inner_dropout = {inner_dropout} are of the rows between two "
                "LSTMs, and depth is 1: leave them out, or set depth"
            )
        size = sizes[stream]
        widths = [*[intermediate_size or size] * (depth - 1), size]
        ways = 2 if direction == "both" else 1
        if any(width % ways for width in widths):
            raise WorkbenchError(f"direction = both divides each width by two; found {widths}, allowed: even widths")
        if cells is not None and cells // ways <= max(widths) // ways:
            raise WorkbenchError(f"cells = {cells} are projected to {widths}; allowed: more cells than each width")
        self.stream, self.direction = stream, direction
        self.reads = self.changes = (stream,)
        self.weight_drop, self.inner_dropout, self.dropout = weight_drop, inner_dropout, dropout
        self.dropout_per = dropout_per
        pairs = zip([size, *widths], widths, strict=False)
        self.lstms = nn.ModuleList(
            nn.LSTM(read, (cells or width) // ways, proj_size=width // ways if cells else 0, bidirectional=ways == 2)
            for read, width in pairs
        )

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden or not len(hidden[self.stream]):
            return hidden
        rows, layout = hidden[self.stream], context.layout(self.stream)
        self._check(layout)
        cached = context.keeps("keys") or context.keeps("rows")
        if self.direction != "forward" and context.reaches_back(self.stream):
            raise WorkbenchError(
                f"an lstm of the direction {self.direction} has read the end already, and the {self.stream} continues "
                "from a KV cache; set direction: forward, or leave out the memory of the network"
            )
        before = context.last_recalled(self.stream) if cached and self.direction == "forward" else None
        made, states = self._stacked(rows, layout, before)
        if cached:  # without a state that continues, the rows alone are counted
            context.recall((self.stream,), states if self.direction == "forward" else states[:, :0], apart=True)
        return {**hidden, self.stream: made.to(rows.dtype)}

    def _check(self, layout: Layout) -> None:
        if self.direction != "forward" and "rank" in layout.integers:
            raise WorkbenchError(
                f"the {self.stream} is read from left to right, and an lstm of the direction {self.direction} reads "
                "rows that come later; set direction: forward"
            )
        check_in_order(self.stream, layout, "an lstm")

    @uncompiled
    def _stacked(self, rows: Tensor, layout: Layout, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """The output of the stack [rows, hidden_size], and its states behind the last row of each sequence, 0 at other
        rows [rows, sum of 2 widths]. It computes in the dtype of its weights."""
        stack = [each for each in self.lstms if isinstance(each, nn.LSTM)]
        dtype = next(self.parameters()).dtype
        backward = self.direction == "backward"
        order = layout.kept(layout, ("recurrent", backward), lambda: row_order_of(layout, backward))
        sizes = [size for lstm in stack for size in _sizes(lstm)]
        kept = rows.new_zeros(len(rows), sum(sizes), dtype=dtype)
        parts = [None] * len(sizes) if before is None else before[order.sequences].to(dtype).split(sizes, 1)
        with torch.autocast(rows.device.type, enabled=False):
            made, last = rows.to(dtype), []
            for number, lstm in enumerate(stack):
                made, h, c = self._one(lstm, made[order.rows], order.counts, parts[2 * number : 2 * number + 2])
                made = made[order.places]
                last += [h, c]
                final = number == len(stack) - 1
                made = self._dropped(made, layout, self.dropout if final else self.inner_dropout)
        if self.direction == "forward":
            kept = kept.index_copy(0, order.ends, torch.cat(last, 1).detach())
        return made, kept

    def _one(
        self, lstm: nn.LSTM, rows: Tensor, counts: Tensor, before: Sequence[Tensor | None]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One LSTM of the stack: its output, and h and c behind the last row of each sequence."""
        weights = [
            dropout(weight, self.weight_drop, self.training) if position == 1 else weight
            for direction in lstm.all_weights
            for position, weight in enumerate(direction)  # W_ih, W_hh and their biases
        ]
        both = self.direction == "both"
        states = [
            rows.new_zeros(1 + both, int(counts[0]), size) if state is None else state[None].contiguous()
            for state, size in zip(before, _sizes(lstm), strict=True)
        ]
        made, h, c = torch.lstm(rows, counts, states, weights, True, 1, 0.0, self.training, both)
        return made, h[0], c[0]

    def _dropped(self, rows: Tensor, layout: Layout, rate: float) -> Tensor:
        if self.dropout_per == "row" or not self.training or not rate:
            return dropout(rows, rate, self.training)
        masks = dropout(rows.new_ones(len(layout.lengths), rows.shape[1]), rate, self.training)
        return rows * masks.repeat_interleave(layout.offsets.diff(), 0, output_size=len(rows))


@uncompiled
def check_in_order(stream: str, layout: Layout, what: str) -> None:
    """Check that each sequence is one text, read from left to right, for a layer without visibility.

    Raises:
        WorkbenchError: several texts are packed into a sequence, rows are hidden from later ones, or are read from
            right to left.
    """
    if "doc" in layout.integers:
        raise WorkbenchError(
            f"several texts are packed into a sequence of {stream}, and {what} begins once in each sequence; "
            "use a builder that makes a sequence for each text"
        )
    if hidden := [name for name in ("until", "branch", "anchor") if name in layout.integers]:
        raise WorkbenchError(
            f"rows of {stream} are hidden from others ({', '.join(hidden)}), and {what} reads every row before its "
            "own; leave out the component that writes these fields"
        )
    if "rank" in layout.integers and layout.kept(layout, "falling rank", lambda: _falls(layout)):
        raise WorkbenchError(
            f"the {stream} is read from right to left (its rank falls), and {what} reads the rows before its own; "
            "use a builder that lets rows see those before them"
        )


def _falls(layout: Layout) -> bool:
    """Whether a row sees none of those before it, by the host's copy of the ranks."""
    ranks = [stream.known("rank") for stream in layout.streams]
    parts = torch.cat(ranks).split(layout.lengths)
    return any(bool((part[1:] < part[:-1]).any()) for part in parts)


def _sizes(lstm: nn.LSTM) -> tuple[int, int]:
    """The widths of h and c of a direction."""
    return lstm.proj_size or lstm.hidden_size, lstm.hidden_size


class RowOrder(NamedTuple):
    """The order in which a recurrent layer reads the rows of sequences side by side, the longest first.

    Attributes:
        rows: the rows [rows]: the first ones of all sequences, then the second ones, ...
        places: the place of each row in that order [rows].
        counts: the sequences that have a first row, a second one, ..., on the host [length of the longest].
        sequences: the sequences with rows, the longest first.
        ends: the last row of each of these.
    """

    rows: Tensor
    places: Tensor
    counts: Tensor
    sequences: Tensor
    ends: Tensor


def row_order_of(layout: Layout, backward: bool = False) -> RowOrder:
    """The order of a layout whose sequences are contiguous; `backward`: the last row of each sequence is its first."""
    lengths = torch.tensor(layout.lengths)
    starts = torch.tensor([0, *accumulate(layout.lengths)])[:-1]
    sequences = torch.argsort(lengths, descending=True, stable=True)[: int((lengths > 0).sum())]
    lengths, starts = lengths[sequences], starts[sequences]
    times = torch.arange(int(lengths[0]))[:, None]
    there = times < lengths
    rows = (starts + (lengths - 1 - times if backward else times))[there]
    moved = [rows, torch.argsort(rows), sequences, starts + lengths - 1]
    on = integers_on_device(moved, layout.device)
    return RowOrder(on[0], on[1], there.sum(1), on[2], on[3])

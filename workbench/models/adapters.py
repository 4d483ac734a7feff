"""Adapters: bottleneck adapters (Houlsby et al., arXiv:1902.00751; Pfeiffer et al., arXiv:2005.00247), low-rank
adaptation (LoRA, Hu et al., arXiv:2106.09685, section 4.1), prefixes (prefix-tuning, Li and Liang, arXiv:2101.00190;
P-tuning v2, Liu et al., arXiv:2110.07602), scales ((IA)^3, Liu et al., arXiv:2205.05638), a stack of layers (K-Adapter,
Wang et al., arXiv:2002.01808, section 3), and a mix of the layers (ELMo, Peters et al., arXiv:1802.05365).
Pruned and rounded weights make a network smaller, and are trained with it (`adapted: trained`).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Le, MinLen
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.options.bounds import CountOrZero, Dropout, Heads, Positive, Share, Size, SomeShare, Word
from workbench.models.adapter import END, KEY_VALUES, Adapter, LayerStates, States, WeightAdapter
from workbench.models.attention.key_values import KeyValues
from workbench.models.blocks import LayerOptions
from workbench.models.context import Context
from workbench.models.feed_forward import activation
from workbench.models.initialisation import initialise
from workbench.models.layers.self import SelfLayer
from workbench.models.layout import Layout, layout_of
from workbench.models.tensor_cut import Blocks, CutDim, TensorCuts, is_spread
from workbench.sequences.batch import Stream


class BottleneckAdapter(Adapter):
    """Bottleneck adapter after a linear layer (Houlsby et al., arXiv:1902.00751; Pfeiffer et al., arXiv:2005.00247).
    Its output is y + U f(D y + b) + c for the layer's output y, with D [size, out] and U [out, size]. U and c begin at
    0.

    Houlsby's has one at the end of attention and of the feed-forward network (`targets: [layers.*.output,
    layers.*.outer]`), Pfeiffer's only the second.

    Args:
        size: width of the bottleneck.
        function: the activation f.
    """

    def __init__(
        self, out_size: Size, size: Size = 64, function: Literal["gelu", "gelu_tanh", "relu", "tanh"] = "gelu"
    ) -> None:
        super().__init__()
        self.down = nn.Linear(out_size, size)
        self.up = nn.Linear(size, out_size)
        self.function = activation(function)

    def initialise(self, scale: float) -> None:
        nn.init.normal_(self.down.weight, std=scale)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def cuts_at(self, place: str, blocks: Blocks) -> TensorCuts:
        if place == "rows":  # the outputs are whole
            return TensorCuts()
        return TensorCuts(columns={"up": blocks}, rows={"down": blocks}, entering=("up",))

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return outputs + self.up(self.function(self.down(outputs)))


class LoraAdapter(Adapter):
    """Low-rank adaptation (LoRA) of a linear layer (Hu et al., arXiv:2106.09685). Its output is W x + (alpha / rank) B
    A x, with A [rank, in] and B [out, rank]. B begins at 0. Exported weights contain the change.

    Args:
        rank: rank of the change.
        alpha: scale of the change, times `rank`.
        dropout: dropout of x before A.
    """

    def __init__(
        self, in_size: Size, out_size: Size, rank: Size = 8, alpha: Positive = 16.0, dropout: Dropout = 0.0
    ) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(in_size, rank, bias=False)
        self.up = nn.Linear(rank, out_size, bias=False)

    def initialise(self, scale: float) -> None:
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)

    def cuts_at(self, place: str, blocks: Blocks) -> TensorCuts:
        if place == "rows":
            return TensorCuts(rows={"down": blocks}, features={"dropout": blocks})
        return TensorCuts(columns={"up": blocks}, summed=("down.weight",))

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return outputs + self.scale * self.up(self.down(self.dropout(inputs)))

    @torch.no_grad()
    def merge(self, linear: nn.Linear) -> None:
        linear.weight += self.scale * self.up.weight @ self.down.weight


class ScalesAdapter(WeightAdapter):
    """Learned scales of the outputs or the inputs of a linear layer ((IA)^3, Liu et al., arXiv:2205.05638, section
    3.3). The output is s * (W x + b), or W (s * x) + b, with one s for each dimension, which begins at 1. Exported
    weights contain the scales.

    The paper scales keys, values, and the activations inside the feed-forward network: `targets: [layers.*.qkv]`, and
    `targets: [layers.*.outer]` with `of: inputs`. A map to queries, keys and values has scales of the queries as well.
    Attention multiplies them with those of the keys, so they can express nothing more. Scaled inputs cost the layer's
    product a second time.

    Args:
        of: what is scaled.
    """

    def __init__(self, linear: nn.Linear, of: Literal["outputs", "inputs"] = "outputs") -> None:
        super().__init__(linear)
        self.of = of
        self.scale = nn.Parameter(torch.ones(linear.out_features if of == "outputs" else linear.in_features))

    def initialise(self, scale: float) -> None:
        nn.init.ones_(self.scale)

    def no_weight_decay(self) -> set[str]:
        return {"scale"}

    def cuts_at(self, place: Literal["columns", "rows", "heads"], blocks: Blocks) -> TensorCuts:
        if self.of == "inputs":
            return super().cuts_at(place, blocks)
        return TensorCuts(tensors={"scale": CutDim(0, blocks)}) if place == "columns" else TensorCuts()

    @property
    def follows(self) -> bool:
        return self.of == "outputs"

    def weight(self) -> Tensor:
        return self.linear.weight * (self.scale[:, None] if self.of == "outputs" else self.scale)

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return outputs * self.scale if self.of == "outputs" else super().forward(inputs, outputs)

    @torch.no_grad()
    def merge(self, module: nn.Linear) -> None:
        super().merge(module)
        if self.of == "outputs" and module.bias is not None:
            module.bias.data *= self.scale


class PrefixAdapter(Adapter):
    """Trained keys and values in front of those of each sequence (prefix-tuning, Li and Liang, arXiv:2101.00190;
    P-tuning v2, Liu et al., arXiv:2110.07602). The output of attention is softmax(q [P_k ; K]^T) [P_v ; V], with P_k
    and P_v [size, heads, head size].

    With `targets: [layers.*]` every attention of the layers has its own. They have the positions -size .. -1, and every
    row of the trunk sees them; no row of a stream moves. Unlike other adapters a fresh prefix changes the output: its
    rows take a share of the attention. The keys and values are trained directly, as in P-tuning v2, and not computed by
    a network as in prefix-tuning.

    Args:
        size: rows of the prefix.

    Raises:
        WorkbenchError: several texts are packed into a sequence; a prefix is at the beginning of one text.
    """

    adapts = KEY_VALUES

    def __init__(self, num_heads: Heads, head_size: Size, size: Size = 16) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.zeros(size, num_heads, head_size))
        self.values = nn.Parameter(torch.zeros(size, num_heads, head_size))

    def initialise(self, scale: float) -> None:
        for rows in (self.keys, self.values):
            nn.init.normal_(rows, std=scale)

    def cuts_at(self, place: str, blocks: Blocks) -> TensorCuts:
        return TensorCuts(tensors={"keys": CutDim(1), "values": CutDim(1)})

    def forward(self, inputs: KeyValues, outputs: KeyValues) -> KeyValues:
        if "doc" in outputs.layout.integers:
            raise WorkbenchError(
                "several texts are packed into a sequence, and a prefix is at the beginning of one text; use a builder "
                "that makes a sequence for each text"
            )
        size = self.keys.shape[0]
        layout = outputs.layout.kept(outputs.layout, ("prefix", size), lambda: _prefixed(outputs.layout, size))
        return KeyValues(_before(self.keys, outputs.keys, layout), _before(self.values, outputs.values, layout), layout)


def _before(prefix: Tensor, rows: Tensor, layout: Layout) -> Tensor:
    return torch.cat([prefix.to(rows.dtype).repeat(len(layout.lengths), 1, 1), rows])


def _prefixed(layout: Layout, size: int) -> Layout:
    """The rows of a prefix for every sequence, then those of the layout."""
    count = len(layout.lengths)
    positions = torch.arange(-size, 0, device=layout.device).repeat(count)
    offsets = torch.arange(count + 1, device=layout.device) * size
    prefix = Stream({"position_ids": positions}, offsets, [size] * count)
    return layout_of([prefix, *layout.streams], torch.cat([positions, layout.restored(layout.index)]))


def _check_stream(stream: str, sizes: dict[str, int]) -> None:
    """
    Raises:
        WorkbenchError: the network has no such stream.
    """
    if stream not in sizes:
        raise unknown("stream", stream, sizes, "the network")


class AdapterLayer(nn.Module):
    """x + U T(D x), with `depth` Transformer layers T between the projections D and U."""

    def __init__(
        self, stream: str, hidden_size: int, size: int, depth: int, num_heads: int, options: dict[str, Any]
    ) -> None:
        super().__init__()
        self.stream = stream
        self.down = nn.Linear(hidden_size, size)
        self.layers = nn.ModuleList([SelfLayer(stream, {stream: size}, num_heads, **options) for _ in range(depth)])
        self.up = nn.Linear(size, hidden_size)

    def forward(self, rows: Tensor, context: Context) -> Tensor:
        hidden = {self.stream: self.down(rows)}
        for layer in self.layers:
            hidden = layer(hidden, context)
        return rows + self.up(hidden[self.stream])


class SideAdapter(Adapter):
    """Transformer layers that read the hidden states of a frozen network (K-Adapter, Wang et al.,
    arXiv:2002.01808). The i-th adapter layer reads the states after layer `after[i]`, plus the output of the adapter
    layer before it. The output is W [h ; s] + b, with the last states h of the network and s of the adapter layers. W
    begins as [I ; 0] and b at 0, so a fresh adapter returns the network's output unchanged.

    The paper concatenates the two inputs of an adapter layer; its published code adds them, and so does this. Heads
    read rows of the network's own width, so W is here, where theirs begin with it. Several such stacks are several
    entries of `adapt`; name one in `train.freeze` to keep it unchanged.

    Args:
        stream: the stream whose rows it reads.
        after: numbers of layers, counted from 1; 0 is the embedding.
        size: width of the Transformer layers.
        depth: Transformer layers in an adapter layer.
        options: of these layers, `workbench.models.blocks.LayerOptions`.

    Raises:
        WorkbenchError: a stream or layers that the network does not have, or layers not in their order.
    """

    adapts = END

    def __init__(
        self,
        stream: Word,
        after: Annotated[list[CountOrZero], MinLen(1)],
        sizes: dict[str, int],
        num_layers: int,
        size: Size = 768,
        depth: Size = 2,
        num_heads: Heads = 12,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        if after[-1] > num_layers or any(first >= second for first, second in pairwise(after)):
            raise WorkbenchError(f"after = {after}; allowed: rising numbers from 0 to {num_layers}, the last layer's")
        _check_stream(stream, sizes)
        self.stream, self.after = stream, after
        hidden_size = sizes[stream]
        self.layers = nn.ModuleList([AdapterLayer(stream, hidden_size, size, depth, num_heads, options) for _ in after])
        self.combine = nn.Linear(2 * hidden_size, hidden_size)

    def initialise(self, scale: float) -> None:
        initialise(self.layers, scale)
        nn.init.eye_(self.combine.weight)
        nn.init.zeros_(self.combine.bias)

    def forward(self, given: LayerStates, made: States) -> States:
        if self.stream not in made:
            return made
        side = torch.zeros_like(made[self.stream])
        for number, layer in zip(self.after, self.layers, strict=True):
            side = layer(given.hidden[number][self.stream] + side, given.context)
        return {**made, self.stream: self.combine(torch.cat([made[self.stream], side], -1))}


class MixAdapter(Adapter):
    """A learned mix of the states of all layers in place of the last ones (ELMo, Peters et al., arXiv:1802.05365,
    equation 1). The output is g sum_j softmax(w)_j h_j, with h_0 the embedding; w begins at 0 and g at 1, so that a
    fresh mix is the mean.

    Args:
        stream: the stream whose layers are mixed.

    Raises:
        WorkbenchError: a stream that the network does not have.
    """

    adapts = END

    def __init__(self, sizes: dict[str, int], num_layers: int, stream: Word = "text") -> None:
        super().__init__()
        _check_stream(stream, sizes)
        self.stream = stream
        self.weights = nn.Parameter(torch.zeros(num_layers + 1))
        self.factor = nn.Parameter(torch.ones(()))

    def initialise(self, scale: float) -> None:
        nn.init.zeros_(self.weights)
        nn.init.ones_(self.factor)

    def forward(self, given: LayerStates, made: States) -> States:
        if self.stream not in made:
            return made
        states = torch.stack([hidden[self.stream] for hidden in given.hidden], -1)
        return {**made, self.stream: self.factor * (states @ self.weights.softmax(0).to(states.dtype))}


class PrunedAdapter(WeightAdapter):
    """Weights of a linear layer of which only the best are kept, more and more over the run; the others count as 0.

    What is best is, by `by`: `magnitude` the weights' size (Gordon et al., arXiv:2002.08307); `movement` a trained
    score of each, through which the gradient of its mask goes straight (Sanh et al., arXiv:2005.07683, section 4);
    `gate` the size of a trained factor of each block of inputs, such as a head (Michel et al., arXiv:1905.10650). The
    kept share falls from 1 to `keep` as keep + (1 - keep) (1 - t)^3, with t from 0 at `since` to 1 at `until` (Zhu and
    Gupta, arXiv:1710.01878). A fresh adapter keeps all.

    Args:
        keep: the share of weights, or of blocks, that are left.
        since: the share of the run up to which all are kept.
        until: the share of the run from which `keep` are left.
        block: inputs of a block of `gate`; by default each is one.
    """

    def __init__(
        self,
        linear: nn.Linear,
        by: Literal["magnitude", "movement", "gate"] = "magnitude",
        keep: SomeShare = 0.5,
        since: Share = 0.0,
        until: SomeShare = 0.6,
        block: Size = 1,
    ) -> None:
        super().__init__(linear)
        if since >= until:
            raise WorkbenchError(f"since = {since}, until = {until}; allowed: since below until")
        if by == "gate" and linear.in_features % block:
            raise WorkbenchError(f"block = {block} does not divide the {linear.in_features} inputs of a linear map")
        self.by, self.keep, self.since, self.until, self.block = by, keep, since, until, block
        shape = {"movement": linear.weight.shape, "gate": (linear.in_features // block,)}.get(by)
        self.scores = None if shape is None else nn.Parameter(torch.ones(shape))
        self.register_buffer("threshold", torch.tensor(torch.finfo(torch.float32).min))
        self.threshold: Tensor

    def initialise(self, scale: float) -> None:
        if self.scores is not None:
            nn.init.constant_(self.scores, float(self.by == "gate"))

    def no_weight_decay(self) -> set[str]:
        return {"scores"}

    def ranked(self) -> Tensor:
        """The numbers of which the largest are kept."""
        best: Tensor = self.linear.weight if self.scores is None else self.scores
        return best.detach() if self.by == "movement" else best.detach().abs()

    def weight(self) -> Tensor:
        mask = (self.ranked() >= self.threshold).to(self.linear.weight)
        if self.scores is None:
            return self.linear.weight * mask
        if self.by == "movement":
            return self.linear.weight * (mask + self.scores - self.scores.detach())
        return self.linear.weight * (self.scores * mask).repeat_interleave(self.block)

    @torch.no_grad()
    def after_step(self, update: Any) -> None:
        """Find the threshold of the share that is kept now; it is a buffer, so a run resumes with it."""
        if is_spread(self.linear.weight):
            raise WorkbenchError("the adapter pruned ranks whole weights; set train.parallel.shard: none")
        t = min(1.0, max(0.0, (update.progress - self.since) / (self.until - self.since)))
        ranked = self.ranked().flatten()
        dropped = min(round((1 - self.keep) * (1 - (1 - t) ** 3) * len(ranked)), len(ranked) - 1)
        if dropped:
            self.threshold.copy_(ranked.kthvalue(dropped + 1).values)


class QuantisedAdapter(WeightAdapter):
    """Rounding to integers of a linear layer's weights and inputs in training, through which gradients go straight
    (Q8BERT, Zafrir et al., arXiv:1910.06188, section 3). x becomes round(x / s) s, cut to 2^(bits - 1) - 1 steps, with
    s so that the largest number fits.

    Weights have one s, or one for each output. Each row of the inputs has its own, found anew; the paper's is a moving
    average over the run. Exported weights are rounded, and the inputs' rounding is lost.

    Args:
        bits: of an integer.
        scales: of the weights: one for the `matrix`, or one for each `output`.
        inputs: whether inputs are rounded, too.
    """

    def __init__(
        self,
        linear: nn.Linear,
        bits: Annotated[int, Ge(2), Le(16)] = 8,
        scales: Literal["matrix", "output"] = "matrix",
        inputs: bool = True,
    ) -> None:
        super().__init__(linear)
        self.bits, self.scales, self.inputs = bits, scales, inputs

    def weight(self) -> Tensor:
        return self.rounded(self.linear.weight, by_row=self.scales == "output")

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return super().forward(self.rounded(inputs, by_row=True) if self.inputs else inputs, outputs)

    def rounded(self, values: Tensor, *, by_row: bool) -> Tensor:
        """The nearest multiples of the scale of a matrix, or of each row."""
        top = 2 ** (self.bits - 1) - 1
        exact = values.detach()
        largest = exact.abs().amax(-1, keepdim=True) if by_row else exact.abs().max()
        scale = largest.clamp_min(torch.finfo(exact.dtype).tiny) / top
        return values + ((exact / scale).round().clamp(-top, top) * scale - exact)

    def merge(self, module: nn.Linear) -> str | None:
        super().merge(module)
        return f"the rounding of inputs to {self.bits} bits (adapter quantised)" if self.inputs else None

"""MobileBERT's layer (Sun et al., arXiv:2004.02984, section 3.1): a narrow Transformer layer between linear maps.

b = norm(D x),  s = norm(S x)                                  bottlenecks, each [rows, bottleneck_size]
h = norm(b + attention(queries s, keys s, values x))
h = norm(h + ffn_k(h))  for each of the feed-forward networks
x = norm(x + U h)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Heads, Size, Word
from workbench.models.blocks import FeedForwardBlock, LayerOptions, MultiHeadAttention
from workbench.models.context import Context
from workbench.models.dropout import dropout
from workbench.models.tensor_cut import TensorCuts


class BottleneckAttention(MultiHeadAttention):
    """Attention whose queries and keys read a bottleneck of the rows, and whose values read the rows.

    Args:
        hidden_size: width of the rows; the result has the width `size` of the bottleneck.
    """

    def __init__(self, hidden_size: int, options: LayerOptions, size: int) -> None:
        super().__init__(hidden_size, replace(options, inner_size=size))
        bias, output_bias = options.biases
        del self.qkv
        self.shared, self.shared_norm = nn.Linear(hidden_size, size, bias=options.bias), options.norm_of(size)
        each = self.kv_heads * self.head_size
        self.query, self.key = nn.Linear(size, size, bias=bias), nn.Linear(size, each, bias=bias)
        self.value = nn.Linear(hidden_size, each, bias=bias)
        self.output = nn.Linear(size, size, bias=output_bias)

    def tensor_cuts(self) -> TensorCuts:
        usual = super().tensor_cuts()
        read = (
            f"{name}.{n}" for name in ("shared", "shared_norm") for n, _ in self.get_submodule(name).named_parameters()
        )
        return TensorCuts(
            usual.divided,
            columns={"query": 1, "key": 1, "value": 1},
            rows={"output": 1},
            summed=(*usual.summed, *read),
        )

    def projected(self, query_rows: Tensor, key_rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        narrow = self.shared_norm(self.shared(query_rows))
        read = narrow if key_rows is None else self.shared_norm(self.shared(key_rows))
        parts = self.query(narrow), self.key(read), self.value(query_rows if key_rows is None else key_rows)
        q, k, v = (part.unflatten(-1, (-1, self.head_size)) for part in parts)
        return q, k, v


class BottleneckLayer(nn.Module):
    """Bottleneck layer of MobileBERT (arXiv:2004.02984, section 3.1): attention and several feed-forward networks of
    narrow rows, between linear maps from and to the width of the stream. Other streams pass through.

    Args:
        stream: the stream's name.
        sizes: hidden size of every stream (given by the network).
        bottleneck_size: width of the narrow rows.
        feed_forwards: number of feed-forward networks.
        options: those of every layer, `workbench.models.blocks.LayerOptions`, of the narrow rows. `dropout` is that of
            the widened rows and of the feed-forward networks.

    Raises:
        WorkbenchError: heads that do not divide the narrow width, or options that the layer lacks: norm_place: pre,
            inner_size.
    """

    def __init__(
        self,
        stream: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        bottleneck_size: Size = 128,
        feed_forwards: Count = 4,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        block, size = LayerOptions(num_heads, **options), bottleneck_size
        if block.norm_place == "pre" or block.inner_size is not None:
            raise WorkbenchError(
                f"norm_place = {block.norm_place}, inner_size = {block.inner_size} of a bottleneck layer; its norms "
                "stand behind its maps, and its attention has the width bottleneck_size: leave both options out"
            )
        self.stream = stream
        self.reads = self.changes = (stream,)
        self.rate = block.dropout
        self.down, self.down_norm = nn.Linear(sizes[stream], size, bias=block.bias), block.norm_of(size)
        self.attention = BottleneckAttention(sizes[stream], block, size)
        self.attention_norm = block.norm_of(size)
        self.feed_forward = nn.ModuleList(FeedForwardBlock(size, block) for _ in range(feed_forwards))
        self.up, self.up_norm = nn.Linear(size, sizes[stream], bias=block.bias), block.norm_of(sizes[stream])

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        rows, known, names = hidden[self.stream], None, (self.stream,)
        layout = keys = context.layout(self.stream)
        if context.keeps("rows"):
            known, keys = context.recall(names, rows)
        attended = self.attention(rows, known, layout, keys, context=context, names=(names, names))
        narrow = self.attention_norm(self.down_norm(self.down(rows)) + attended)
        for network in self.feed_forward:
            narrow = network(narrow, context)
        wide = dropout(self.up(narrow), self.rate, self.training)
        return {**hidden, self.stream: self.up_norm(rows + wide)}

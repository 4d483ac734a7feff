"""ERNIE-THU's aggregator: fuses each entity with its token, in both directions.

Zhang et al., "ERNIE: Enhanced Language Representation with Informative Entities", ACL 2019 (arXiv 1905.07129),
section 3.3, as released. With x the rows of the text stream and e those of the entity stream, e_k on token t(k):

    x = norm(x + attention(x))
    e = norm(e + attention(e))                                   (left out by the released code's "mix" layer)
    h = act(W_x x + b_x + b_e + sum of W_e e_k over the entities k with t(k) = this token)
    x = norm(W_o h + b_o + x)
    e = norm(W_oe h[t(k)] + b_oe + e)

As in the released code, and unlike the paper, only the fusion has an activation. Both outputs have a residual and a
norm (the paper: x = act(W_o h + b_o) and e = act(W_oe h + b_oe)). A token without an entity receives b_e too. Entity
rows exist only where an entity is: removing an entity removes its row, which is the released code's `ent_mask`.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch.nn.functional as F
from annotated_types import Len
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Word
from workbench.models.blocks import AttentionBlock, FeedForwardBlock, LayerOptions
from workbench.models.context import Context
from workbench.models.feed_forward import Ungated
from workbench.models.tensor_cut import CutModule, TensorCuts


class AggregatorLayer(CutModule, nn.Module):
    """Aggregator of ERNIE-THU (Zhang et al., arXiv:1905.07129): self-attention of the text and of the entities, then
    their fusion. The fused state of an entity and its token is h = act(W_x x + W_e e + b). The new states of both are
    computed from h, each with a residual and a norm.

    The text's half has the names of the core's `self` layer (`attention`, `feed_forward`), so that the weights of a
    plain text model load into it.

    Args:
        streams: the text stream and the entity stream, whose field `token` is the text row each entity hangs on.
        sizes: hidden size of every stream (given by the network).
        num_heads: attention heads of the text and of the entity stream.
        entity_attention: the released code's "norm" layer; False is its "mix" layer, which comes once, before them.
        entity_output: False leaves out what makes the new entity states and ends the entity stream: for the last
            layer, where no loss reads them (the released code keeps these parameters out of its optimiser).
        activation: of the fused state; gated ones have no fused form.
        options: those of every layer; `intermediate_size` is the width of the fused state.
    """

    reached_by_some = ("entity_outer", "entity_residual")  # new entities, where no layer comes behind

    def __init__(
        self,
        streams: Annotated[list[Word], Len(2, 2)],
        sizes: dict[str, int],
        num_heads: Annotated[list[Heads], Len(2, 2)],
        entity_attention: bool = True,
        entity_output: bool = True,
        activation: Ungated = "gelu",
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        super().__init__()
        self.text, self.entity = streams
        self.reads = self.changes = (self.text, self.entity)
        text_size, entity_size = sizes[self.text], sizes[self.entity]
        inner = options.get("intermediate_size") or 4 * text_size
        options["intermediate_size"] = inner
        text, entity = (LayerOptions(heads, activation=activation, **options) for heads in num_heads)
        if text.experts is not None:
            raise WorkbenchError("the fused state of an aggregator is that of a single network; leave out experts")
        self.attention = AttentionBlock(text_size, text)
        self.feed_forward = FeedForwardBlock(text_size, text)
        self.entity_attention = AttentionBlock(entity_size, entity) if entity_attention else None
        self.entity_inner = nn.Linear(entity_size, inner, bias=text.bias)
        self.entity_outer = nn.Linear(inner, entity_size, bias=text.bias) if entity_output else None
        self.entity_residual = entity.sublayer(entity_size) if entity_output or text.norm_place == "pre" else None

    def tensor_cuts(self) -> TensorCuts:
        """The fused state is cut."""
        network = "feed_forward.network"
        outer = ["entity_outer"] if self.entity_outer is not None else []
        return TensorCuts(
            {"intermediate_size": self.entity_inner.out_features},
            columns={f"{network}.inner": 1, "entity_inner": 1},
            rows=dict.fromkeys([f"{network}.outer", *outer], 1),
            owns=(network,),
            complete=False,
        )

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        """Text rows [tokens, text size] and entity rows [entities, entity size] -> the same, fused.

        A batch without the entity stream is fused as one in which no token has an entity.
        """
        if self.text not in hidden:
            return hidden
        new = dict(hidden)
        text = self.attention(hidden[self.text], context, (self.text,))
        fused = self._text_inner(text)
        entity = new.pop(self.entity, None)
        if entity is None:
            new[self.text] = self._text_outer(text, self.feed_forward.single.activation(fused))
            return new
        if self.entity_attention is not None:
            entity = self.entity_attention(entity, context, (self.entity,))
        token = context.fields(self.entity)["token"]
        entered = self.entered(entity if self.entity_residual is None else self.entity_residual.enter(entity))
        fused = fused.index_add(0, token, F.linear(entered, self.entity_inner.weight).to(fused.dtype))
        fused = self.feed_forward.single.activation(fused)
        new[self.text] = self._text_outer(text, fused)
        if self.entity_outer is not None and self.entity_residual is not None:
            new[self.entity] = self.entity_residual.leave(entity, self.entity_outer(fused[token]))
        return new

    def _text_inner(self, text: Tensor) -> Tensor:
        """The text's part of the fused state, with both biases [tokens, intermediate_size]."""
        rows = self.entered(self.feed_forward.residual.enter(text))
        inner = self.feed_forward.single.inner
        bias = None if inner.bias is None else inner.bias + self.entity_inner.bias
        return F.linear(rows, inner.weight, bias)

    def _text_outer(self, text: Tensor, fused: Tensor) -> Tensor:
        return self.feed_forward.residual.leave(text, self.feed_forward.single.outer(fused))

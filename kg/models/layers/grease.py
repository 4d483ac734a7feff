"""GreaseLM's layer: message passing over a subgraph, and an exchange with the text by one token and one node.

Zhang et al., "GreaseLM: Graph REASoning Enhanced Language Models for Question Answering", ICLR 2022 (arXiv 2201.08860),
section 3.2. With e_s the state of node s plus the vector of its kind, r_st the vector of the relation of an edge from s
to t, and each node joined to itself,

    a_st = softmax over the s with an edge to t of  f_q(e_s) . f_k([e_t; r_st]) / sqrt(size), for each head
    e_t  = norm(e_t + f_n(sum over s of a_st f_m([e_s; r_st])))
    [h_int; e_int] = MLP([h_int; e_int])

h_int is the first row of the text, e_int the first node. f_q, f_k and f_m are linear, f_n and the MLP have two layers.
The paper has a batch norm inside f_n; here a layer norm follows the residual, so that a sequence is read alone as it is
in a batch. The attention of the text itself is a layer `self` before this one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Dropout, Heads, Size, Word
from workbench.models.context import Context

KINDS = 3
"""The interaction node, linked entities, their neighbours."""


class GreaseLayer(nn.Module):
    """Graph layer of GreaseLM (Zhang et al., arXiv:2201.08860): attention over the typed edges of the nodes of each
    sequence, then an exchange of the first row of the text with the first node. The transform `kg.subgraph` makes the
    streams of nodes and edges.

    Args:
        stream: the stream of the text.
        nodes: the stream of the nodes, whose embedding is a table of entity vectors.
        edges: the stream of the edges, without an embedding.
        relations: the relations of the graph, at least.
        sizes: hidden size of every stream (given by the network).
        heads: attention heads of the nodes.
        interaction_size: inner width of the exchange.
        dropout: of messages and of the exchange.
    """

    def __init__(
        self,
        stream: Word,
        nodes: Word,
        edges: Word,
        relations: Size,
        sizes: dict[str, int],
        heads: Heads = 2,
        interaction_size: Size = 200,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        self.stream, self.nodes, self.edges, self.heads = stream, nodes, edges, heads
        self.reads = self.changes = (stream, nodes)
        width, size = sizes[stream], sizes[nodes]
        if size % heads:
            raise WorkbenchError(f"the nodes have size {size}; allowed: a multiple of heads = {heads}")
        self.kind = nn.Embedding(KINDS, size)
        self.relation = nn.Embedding(2 * relations + 2, size)  # both ways, to the interaction node, to itself
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(2 * size, size)
        self.message = nn.Linear(2 * size, size)
        self.inner, self.outer = nn.Linear(size, size), nn.Linear(size, size)
        self.norm = nn.LayerNorm(size)
        self.exchange_inner = nn.Linear(width + size, interaction_size)
        self.exchange_outer = nn.Linear(interaction_size, width + size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        """Text rows [tokens, text size], nodes [nodes, node size] -> the same; without nodes the text passes
        through."""
        if self.stream not in hidden or self.nodes not in hidden:
            return hidden
        text, nodes = hidden[self.stream], self._propagated(hidden[self.nodes], context)
        parts = [context.batch.streams[name] for name in (self.stream, self.nodes)]
        both = [bool(rows and others) for rows, others in zip(*(part.lengths for part in parts), strict=True)]
        first, node = (part.offsets[:-1] for part in parts)
        if not all(both):
            chosen = torch.tensor(both).nonzero()[:, 0].to(text.device)
            first, node = first[chosen], node[chosen]
        joined = torch.cat([text[first], nodes[node].to(text.dtype)], dim=-1)
        made = self.exchange_outer(self.dropout(nn.functional.gelu(self.exchange_inner(joined))))
        own, others = made.split([text.shape[-1], nodes.shape[-1]], dim=-1)
        return {
            **hidden,
            self.stream: text.index_copy(0, first, own.to(text.dtype)),
            self.nodes: nodes.index_copy(0, node, others.to(nodes.dtype)),
        }

    def _propagated(self, nodes: Tensor, context: Context) -> Tensor:
        """The nodes [nodes, size] after messages along the edges."""
        source, target, relation = self._edges(len(nodes), context, nodes.device)
        kinds = context.fields(self.nodes).get("kind")
        named = nodes + (self.kind.weight[0] if kinds is None else self.kind(kinds))
        labels = self.relation(relation)
        queries = self.query(named)[source].unflatten(-1, (self.heads, -1))
        keys = self.key(torch.cat([named[target], labels], -1)).unflatten(-1, (self.heads, -1))
        scores = (queries * keys).sum(-1).float() / math.sqrt(keys.shape[-1])
        shares = softmax_over(scores, target, len(nodes)).to(nodes.dtype)
        messages = self.message(torch.cat([named[source], labels], -1)).unflatten(-1, (self.heads, -1))
        weighted = (shares.unsqueeze(-1) * messages).flatten(1)
        received = torch.zeros_like(nodes).index_add(0, target, weighted.to(nodes.dtype))
        return self.norm(nodes + self.dropout(self.outer(nn.functional.gelu(self.inner(received)))))

    def _edges(self, count: int, context: Context, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Source, target and relation of each edge, each node's own last."""
        own = torch.arange(count, device=device)
        loop = torch.full_like(own, self.relation.num_embeddings - 1)
        if self.edges not in context.batch.streams:
            return own, own, loop
        fields = context.fields(self.edges)
        relation = fields.get("relation", torch.zeros_like(fields["token"]))
        return torch.cat([fields["token"], own]), torch.cat([fields["last"], own]), torch.cat([relation, loop])


def softmax_over(scores: Tensor, group: Tensor, groups: int) -> Tensor:
    """Softmax of scores [rows, heads] over the rows of each group [rows]."""
    index = group[:, None].expand_as(scores)
    highest = scores.detach().new_full((groups, scores.shape[1]), -torch.inf)
    highest = highest.scatter_reduce(0, index, scores.detach(), "amax")
    weights = (scores - highest[group]).exp()
    total = weights.new_zeros(groups, scores.shape[1]).index_add(0, group, weights)
    return weights / total[group]

"""Transformer-XL's relative positions (Dai et al., ACL 2019, arXiv:1901.02860, section 3.3), and XLNet's segments.

    score[h, q, k] = (q_h + u_h) . k_h + (q_h + v_h) . W_h R(position_q - position_k)

    R(d) = [sin(d f_0), sin(d f_1), ..., cos(d f_0), cos(d f_1), ...],   f_i = 10000^(-2 i / width)

scaled as a whole. The product of query and key is attention's own; the other three are added here. XLNet (Yang et al.,
arXiv:1906.08237, section 2.5) adds (q_h + s_h) . e_h, with one e where both rows are of one segment
(`token_type_ids`) and another where they are not. u, v and s are in a module of their own, `biases`: the paper has
one u and one v for all layers (`share: biases`), XLNet has them in each.

The terms depend on the states of the rows, so flex attention, which modifies single scores, has no form of them.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from workbench.core.options.bounds import Heads, Size
from workbench.models.attention.score_bias import QueryKeyGrid, ScoreBias

STEP = 64  # tables of distances have multiples of it as sizes, so that few of them serve all lengths
BASE = 10000.0


class Biases(nn.Module):
    """The vectors added to the queries of each head: u, v and, where there are segments, s, all [heads, size]."""

    def __init__(self, num_heads: int, head_size: int, segments: bool) -> None:
        super().__init__()
        self.content_bias = nn.Parameter(torch.zeros(num_heads, head_size))
        self.position_bias = nn.Parameter(torch.zeros(num_heads, head_size))
        self.segment_bias = nn.Parameter(torch.zeros(num_heads, head_size)) if segments else None


class RelativeBias(ScoreBias):
    """Relative position encoding of Transformer-XL (Dai et al., arXiv:1901.02860, section 3.3), and segments of XLNet.
    Distances are sinusoids, which the query attends to through a matrix of each layer.

    Args:
        segments: whether a term for two rows in one segment is added (XLNet).
    """

    heads_in = {  # noqa: RUF012
        "project.weight": 0,
        "segment": 1,
        "biases.content_bias": 0,
        "biases.position_bias": 0,
        "biases.segment_bias": 0,
    }

    def __init__(self, num_heads: Heads, head_size: Size, segments: bool = False) -> None:
        super().__init__()
        self.num_heads, self.head_size = num_heads, head_size
        self.project = nn.Linear(num_heads * head_size, num_heads * head_size, bias=False)
        self.segment = nn.Parameter(torch.zeros(2, num_heads, head_size)) if segments else None
        self.biases = Biases(num_heads, head_size, segments)

    def take_part(self, rank: int, ranks: int) -> None:
        self.num_heads //= ranks

    def initialise(self, scale: float) -> None:
        """Draw all as matrices are drawn, the biases too, as in the published code of both papers."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=scale)

    def forward(self, pair: QueryKeyGrid) -> Tensor:
        contents = torch.einsum("bhks,hs->bhk", pair.k, self.biases.content_bias.to(pair.k.dtype))
        added = self._positions(pair) + contents.unsqueeze(2)
        if self.segment is not None:
            added = added + self._segments(pair)
        return added * pair.factor

    def _positions(self, pair: QueryKeyGrid) -> Tensor:
        """(q + v) . W R(d) of every pair [batch, heads, q, k]: of all distances, from which each pair takes its own."""
        q_at, k_at = pair.positions
        distance = q_at[:, :, None] - k_at[:, None, :]
        if pair.hidden is not None:
            distance = distance.masked_fill(pair.hidden, 0)
        first, last = _bounds(pair, distance)
        rows = self.project(_sinusoids(first, last, self.project.in_features, distance.device))
        rows = rows.view(-1, self.num_heads, self.head_size).permute(1, 2, 0)
        of_all = (pair.q + self.biases.position_bias[:, None].to(pair.q.dtype)) @ rows.to(pair.q.dtype)
        index = (distance - first)[:, None].expand(*of_all.shape[:3], distance.shape[2])
        return of_all.gather(-1, index)

    def _segments(self, pair: QueryKeyGrid) -> Tensor:
        """(q + s) . e of the pair's segments, the same one or two [batch, heads, q, k]."""
        assert self.segment is not None
        assert self.biases.segment_bias is not None
        queries = pair.q + self.biases.segment_bias[:, None].to(pair.q.dtype)
        same, other = torch.einsum("bhqs,ehs->ebhq", queries, self.segment.to(pair.q.dtype)).unsqueeze(-1)
        q, k = pair.field("token_type_ids")
        return torch.where((q[:, :, None] == k[:, None, :])[:, None], same, other)


def _bounds(pair: QueryKeyGrid, distance: Tensor) -> tuple[int, int]:
    """The least and the greatest distance; on another device than the CPU those of the whole batch, once, from the
    host's knowledge of it."""
    if distance.device.type == "cpu":
        return int(distance.min()), int(distance.max())

    def make() -> tuple[int, int]:
        (q_first, q_last), (k_first, k_last) = pair.queries.position_range, pair.keys.position_range
        return q_first - k_last, q_last - k_first

    return pair.queries.kept(pair.keys, "distances", make)


def _sinusoids(first: int, last: int, width: int, device: torch.device) -> Tensor:
    """R of the distances first .. last [last - first + 1, width]."""
    farthest = STEP * math.ceil(max(abs(first), abs(last), 1) / STEP)
    return _table(farthest, width, device)[first + farthest : last + farthest + 1]


@lru_cache(maxsize=16)
def _table(farthest: int, width: int, device: torch.device) -> Tensor:
    """R of the distances -farthest .. farthest, for evaluation and training alike."""
    with torch.inference_mode(False):
        frequencies = BASE ** -(torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
        angles = torch.arange(-farthest, farthest + 1, device=device, dtype=torch.float32)[:, None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], -1)[:, :width]

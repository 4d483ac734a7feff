"""Attention over two small streams, for the contracts of score biases and for how kernels treat them."""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.models.attention.call import attend, use_kernel
from workbench.models.attention.score_bias import ScoreBias
from workbench.models.context import Context
from workbench.sequences.batch import Batch, Stream

HEADS, SIZE = 3, 16
LENGTHS = {"text": [5, 1, 9, 3], "image": [4, 0, 4, 2]}


def batch(kept: list[int] | None = None, plain: bool = False) -> Batch:
    """Streams with soft positions, or with plain ones; text has visibility integers."""
    g = torch.Generator().manual_seed(3)
    streams = {}
    for name, lengths in LENGTHS.items():
        fields = {"position_ids": torch.cat([torch.arange(n) for n in lengths])}
        if not plain:
            fields["position_ids"] = torch.randint(0, 20, (sum(lengths),), generator=g)
        if name == "text":
            fields["token_type_ids"] = torch.randint(0, 2, (sum(lengths),), generator=g)
            fields["rank"] = torch.randint(0, 3, (sum(lengths),), generator=g)
        chosen = range(len(lengths)) if kept is None else kept
        parts = {f: [t.split(lengths)[i] for i in chosen] for f, t in fields.items()}
        now = [lengths[i] for i in chosen]
        streams[name] = Stream({f: torch.cat(p) for f, p in parts.items()}, torch.tensor([0, *now]).cumsum(0), now)
    return Batch(streams)


def rows(count: int, seed: int) -> Tensor:
    return torch.randn(count, HEADS, SIZE, generator=torch.Generator().manual_seed(seed))


def attended(score_bias: ScoreBias | None, kernel: str, streams: tuple[str, ...], plain: bool = False) -> list[Tensor]:
    """The result; with it, where a kernel has gradients on a CPU, those of q, k, v and of the score bias's
    parameters."""
    layout = Context(batch(plain=plain)).layout(*streams)
    with_gradients = kernel != "flex"
    q, k, v = (rows(layout.rows, i).requires_grad_(with_gradients) for i in range(3))
    learned = list(score_bias.parameters()) if score_bias else []
    with use_kernel(kernel), torch.set_grad_enabled(with_gradients):
        out, _ = attend(q, k, v, layout, layout, score_bias=score_bias)
    if not with_gradients:
        return [out]
    total = (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum()
    return [out, *torch.autograd.grad(total, [q, k, v, *learned])]

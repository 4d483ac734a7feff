"""flex_attention as its formula: the blocks that the block mask names, its mask_mod inside of them, the score_mod.

Stands in the place of torch's function, whose compiled kernel would compute nothing here. It reads the block mask as
the kernel does: a block that is not listed is never seen, a full block is not masked. What the backward would read
(blocks by keys) must say the same. Counted: one launch forward, two backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as module
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import _FlopCounterMode

from tests.gpu_without_gpu.emulation.counting import launch, silence, silenced
from tests.gpu_without_gpu.emulation.memory import alias


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """As torch's, for query [batch, heads, rows, size]."""
    _refuse_other_modes()
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"flex_attention: dtypes {query.dtype}, {key.dtype} and {value.dtype}")
    launch()
    begun = torch.zeros((), requires_grad=True) * 1  # the sequence number of its node: ours are later
    with silence(), torch.autocast(query.device.type, enabled=False):
        out, log_sum = _formula(query, key, value, score_mod, block_mask, scale)
    if out.requires_grad:
        _silence_backward(out, log_sum, begun.grad_fn._sequence_nr())
    if return_aux is not None:
        return out, module.AuxOutput(lse=log_sum if return_aux.lse else None)
    return (out, log_sum) if return_lse else out


def _refuse_other_modes() -> None:
    """What a mode without a rule for the operator does to it on a GPU."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, _FlopCounterMode):
            raise TypeError("no implementation found for 'torch.ops.higher_order.flex_attention' in FlopCounterMode")
        if not type(mode).supports_higher_order_operators:
            raise NotImplementedError(f"no rule registered for HigherOrderOperator flex_attention and mode {mode}")


def _formula(
    q: Tensor, k: Tensor, v: Tensor, score_mod: Any, block_mask: Any, scale: float | None
) -> tuple[Tensor, Tensor]:
    batch, heads, rows, size = q.shape
    shared = heads // k.shape[1]
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    b, h, i, j = (
        torch.arange(n, device=q.device, dtype=torch.int32).view([-1 if axis == a else 1 for a in range(4)])
        for axis, n in enumerate((batch, heads, rows, k.shape[2]))
    )
    scores = torch.einsum("bhqd,bhkd->bhqk", q.float(), k.float()) * (size**-0.5 if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, b, h, i, j).float()
    if block_mask is not None:
        listed, full = _blocks(block_mask, rows, k.shape[2], q.device)
        scores = scores.masked_fill(~(full | (listed & block_mask.mask_mod(b, h, i, j))), float("-inf"))
    weights, log_sum = _Softmax.apply(scores)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v.float()).to(q.dtype), log_sum


class _Softmax(torch.autograd.Function):
    """Weights, zero in rows that see nothing, and log-sums. One node: autograd's sums between nodes are counted."""

    @staticmethod
    def forward(context: Any, scores: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        log_sum = torch.logsumexp(scores, -1)
        weights = torch.exp(scores - log_sum.masked_fill(log_sum == float("-inf"), 0.0)[..., None])
        context.save_for_backward(weights)
        return weights, log_sum

    @staticmethod
    def backward(context: Any, of_weights: Tensor, of_log_sum: Tensor) -> Tensor:  # type: ignore[override]
        (weights,) = context.saved_tensors
        inner = (of_weights * weights).sum(-1, keepdim=True)
        return weights * (of_weights - inner + of_log_sum[..., None])


def _blocks(mask: Any, rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of each pair of rows: whether its block is listed, and whether as a full one [batch, heads, q, k], booleans."""
    height, width = mask.BLOCK_SIZE
    if tuple(mask.seq_lengths) != (rows, columns):
        raise ValueError(f"the block mask is for {mask.seq_lengths}, the call for {(rows, columns)} rows")
    found = []
    for kind in ("", "full_"):
        by_query = _listed(getattr(mask, f"{kind}kv_num_blocks"), getattr(mask, f"{kind}kv_indices"))
        by_key = _listed(getattr(mask, f"{kind}q_num_blocks"), getattr(mask, f"{kind}q_indices"))
        if by_query is None:
            found.append(torch.zeros(1, 1, rows, columns, dtype=torch.bool, device=device))
            continue
        assert by_key is None or torch.equal(by_query, by_key.mT), "the block mask's two directions differ"
        dense = by_query.repeat_interleave(height, -2)[..., :rows, :].repeat_interleave(width, -1)[..., :columns]
        found.append(dense.to(device))
    return found[0], found[1]


def _listed(counts: Tensor | None, indices: Tensor | None) -> Tensor | None:
    """The first `counts` of the indices [batch, heads, blocks, blocks], as booleans on the CPU."""
    if counts is None or indices is None:
        return None
    counts, indices = alias(counts).long(), alias(indices).long()
    valid = torch.arange(indices.shape[-1]) < counts[..., None]
    out = torch.zeros(*indices.shape[:-1], indices.shape[-1] + 1, dtype=torch.bool)
    return out.scatter(-1, indices.masked_fill(~valid, indices.shape[-1]), True)[..., :-1]


def _silence_backward(out: Tensor, log_sum: Tensor, begun: int) -> None:
    """The nodes that the formula made are not counted when they run, and stand for two launches together."""
    pending, seen = [out.grad_fn, log_sum.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen or node.name().endswith("AccumulateGrad") or node._sequence_nr() < begun:
            continue
        seen.add(node)
        pending += [before for before, _ in node.next_functions]
        node.register_prehook(_begin)
        node.register_hook(_end)
    out.grad_fn.register_prehook(_launched)


def _begin(gradients: Any) -> None:
    silenced(1)


def _end(inputs: Any, outputs: Any) -> None:
    silenced(-1)


def _launched(gradients: Any) -> None:
    silenced(-1)  # this node's own silence has begun
    launch(2)
    silenced(1)


def install() -> None:
    """Before the product is imported, which takes the function by name. What it compiles runs uncompiled."""
    module.flex_attention = flex_attention  # type: ignore[assignment]
    torch.compiler.set_stance("force_eager")

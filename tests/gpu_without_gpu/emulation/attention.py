"""The fused attention operators of CUDA, as their formula: flash (varlen too), memory-efficient and cuDNN's.

All are one thing: `Part`s of rows that attend to each other, each with a mask. The output's memory, its strides and the
random state come from the operator itself, which is run where that is possible (cuDNN's library is not).

Shapes: q [rows, heads, size] of all sequences, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.gpu_without_gpu.emulation.counting import launch
from tests.gpu_without_gpu.emulation.memory import alias, device_of, fill, on_device

aten = torch.ops.aten


@dataclass
class Part:
    """A sequence: which rows of the queries and the keys, and what is added to its scores [heads or 1, q, k]."""

    queries: slice
    keys: slice
    bias: Tensor | None = None


@dataclass
class Call:
    """What is the same for all sequences of a call. `left` and `right`: how far a window reaches; None is without end.

    Windows and causality are those of flash attention: the last query stands at the last key.
    """

    scale: float
    left: int | None = None
    right: int | None = None
    dropout: float = 0.0
    key: int = 0
    """Of the dropped weights: forward and backward draw the same."""

    def scores(self, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """[heads, q, k], -inf where a query does not see a key."""
        scores = torch.einsum("qhd,khd->hqk", q, _as_many(k, q)) * self.scale
        if bias is not None:
            scores = scores + bias
        place = torch.arange(len(q))[:, None] + len(k) - len(q)
        distance = torch.arange(len(k))[None] - place  # below 0: the key stands before the query
        hidden = torch.zeros_like(distance, dtype=torch.bool)
        if self.right is not None:
            hidden |= distance > self.right
        if self.left is not None:
            hidden |= -distance > self.left
        return scores.masked_fill(hidden, float("-inf"))

    def kept(self, like: Tensor, part: int) -> Tensor:
        """1 / (1 - p) for the weights that stay, 0 for those that drop."""
        if self.dropout == 0.0:
            return torch.ones_like(like)
        drawn = torch.rand(like.shape, generator=torch.Generator().manual_seed((self.key + part) % 2**63))
        return (drawn >= self.dropout) / (1.0 - self.dropout)


def _as_many(keys: Tensor, queries: Tensor) -> Tensor:
    """Keys of a head that several heads of queries share, once for each."""
    return keys.repeat_interleave(queries.shape[1] // keys.shape[1], 1)


def _weights(call: Call, q: Tensor, k: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Softmax, zero in rows that see nothing, and its log-sum [heads, q]."""
    scores = call.scores(q, k, bias)
    log_sum = torch.logsumexp(scores, -1)
    return torch.exp(scores - log_sum.masked_fill(log_sum == float("-inf"), 0.0)[..., None]), log_sum


def forward(call: Call, parts: list[Part], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs [rows, heads, size of v] and log-sums [heads, rows]."""
    q, k, v = q.float(), k.float(), v.float()
    out = torch.zeros(*q.shape[:2], v.shape[-1])
    log_sums = torch.full((q.shape[1], len(q)), float("inf"))
    for number, part in enumerate(parts):
        weights, log_sum = _weights(call, q[part.queries], k[part.keys], part.bias)
        dropped = weights * call.kept(weights, number)
        out[part.queries] = torch.einsum("hqk,khd->qhd", dropped, _as_many(v[part.keys], q))
        log_sums[:, part.queries] = log_sum.masked_fill(log_sum == float("-inf"), float("inf"))
    return out, log_sums


def backward(
    call: Call, parts: list[Part], grad: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Gradients of queries, keys and values, and of the scores of each stretch [heads, q, k]."""
    grad, q, k, v = grad.float(), q.float(), k.float(), v.float()
    heads, shared = q.shape[1], q.shape[1] // k.shape[1]
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    of_scores = []
    for number, part in enumerate(parts):
        weights, _ = _weights(call, q[part.queries], k[part.keys], part.bias)
        kept, g = call.kept(weights, number), grad[part.queries]
        along_values = torch.einsum("hqk,qhd->khd", weights * kept, g)
        of_weights = torch.einsum("qhd,khd->hqk", g, _as_many(v[part.keys], q)) * kept
        of_score = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))
        dq[part.queries] = torch.einsum("hqk,khd->qhd", of_score, _as_many(k[part.keys], q)) * call.scale
        along_keys = torch.einsum("hqk,qhd->khd", of_score, q[part.queries]) * call.scale
        dk[part.keys] += along_keys.unflatten(1, (heads // shared, shared)).sum(2)
        dv[part.keys] += along_values.unflatten(1, (heads // shared, shared)).sum(2)
        of_scores.append(of_score)
    return dq, dk, dv, of_scores


# ---- which operator says what ----


def _by_offsets(queries: Tensor, keys: Tensor) -> list[Part]:
    q, k = queries.tolist(), keys.tolist()
    return [Part(slice(q[i], q[i + 1]), slice(k[i], k[i + 1])) for i in range(len(q) - 1)]


def _by_batch(q: Tensor, k: Tensor, bias: Tensor | None = None) -> list[Part]:
    """For q [batch, heads, rows, size]."""
    batch, heads, rows, columns = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    whole = None if bias is None else bias.float().expand(batch, heads, rows, columns)
    return [
        Part(
            slice(i * rows, (i + 1) * rows), slice(i * columns, (i + 1) * columns), None if whole is None else whole[i]
        )
        for i in range(batch)
    ]


def _rows(x: Tensor) -> Tensor:
    """[batch, heads, rows, size] -> [batch x rows, heads, size]."""
    return x.transpose(1, 2).flatten(0, 1)


def _grid(rows: Tensor, like: Tensor) -> Tensor:
    """The way back, for the batch and the rows of `like`."""
    return rows.unflatten(0, (like.shape[0], like.shape[2])).transpose(1, 2)


def _window(causal: bool, left: int | None, right: int | None) -> tuple[int | None, int | None]:
    """Flash attention writes -1 for a window without end, and causal is a right side of 0."""
    left, right = (None if side is None or side < 0 else side for side in (left, right))
    return left, 0 if causal else right


def _note(state: Tensor, key: int) -> None:
    """The key of the dropped weights lies where CUDA keeps the state of its generator."""
    if state.numel():
        alias(state).view(-1)[0] = key


def _noted(state: Tensor) -> int:
    return int(alias(state).view(-1)[0]) if state.numel() else 0


Run = Callable[[], Any]


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of an operator by name, defaults included."""
    known = {argument.name: argument.default_value for argument in func._schema.arguments}
    given = dict(zip(known, args, strict=False))
    return known | given | kwargs


def flash(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_flash_attention_forward`: rows by offsets, or [batch, rows, heads, size] without."""
    given, out = _named(func, args, kwargs), func(*args, **kwargs)
    for name in ("seqused_k", "alibi_slopes", "block_table"):
        assert given[name] is None, f"flash attention with {name} is not emulated"
    call, parts, (q, k, v) = _of_flash(given, _new_key(given))
    values, log_sums = forward(call, parts, q, k, v)
    alias(out[0]).copy_(values.view(out[0].shape))
    if given["cum_seq_q"] is not None:
        alias(out[1]).copy_(log_sums.view(out[1].shape))
    _note(out[2], call.key)
    return out


def flash_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given, out = _named(func, args, kwargs), func(*args, **kwargs)
    call, parts, (q, k, v) = _of_flash(given, _noted(given["rng_state"]))
    gradient = alias(given["grad_out"]).reshape(*q.shape[:2], -1)
    for made, value in zip(out, backward(call, parts, gradient, q, k, v)[:3], strict=True):
        alias(made).copy_(value.view(made.shape))
    return out


def _of_flash(given: dict[str, Any], key: int) -> tuple[Call, list[Part], list[Tensor]]:
    q, k, v = (alias(given[name]) for name in ("query", "key", "value"))
    left, right = _window(given["is_causal"], given["window_size_left"], given["window_size_right"])
    call = Call(given["scale"] or q.shape[-1] ** -0.5, left, right, given["dropout_p"], key)
    if given["cum_seq_q"] is not None:
        return call, _by_offsets(alias(given["cum_seq_q"]), alias(given["cum_seq_k"])), [q, k, v]
    grids = [x.transpose(1, 2) for x in (q, k, v)]
    return call, _by_batch(grids[0], grids[1]), [_rows(grid) for grid in grids]


def grid(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The three operators behind scaled_dot_product_attention, on [batch, heads, rows, size]."""
    given = _named(func, args, kwargs)
    call, parts, rows = _of_grid(given, _new_key(given))
    values, log_sums = forward(call, parts, *rows)
    q = given["query"]
    log_sums = log_sums.view(q.shape[1], q.shape[0], q.shape[2]).transpose(0, 1)
    if func is aten._scaled_dot_product_cudnn_attention.default:
        device = device_of([given[name] for name in ("query", "key", "value", "attn_bias")])
        launch()
        made = on_device([_grid(values, q).to(q.dtype), log_sums[..., None].contiguous()], device)
        state = torch.tensor(call.key)
        nothing = torch.empty(0, dtype=q.dtype, device=device)
        return *made, None, None, q.shape[2], given["key"].shape[2], state, torch.tensor(0), nothing
    out = func(*args, **kwargs)
    alias(out[0]).copy_(_grid(values, q))
    states = [name for name in _outputs(func) if name in ("rng_state", "philox_seed")]
    _note(out[_outputs(func).index(states[0])], call.key)
    return out


def grid_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = _named(func, args, kwargs)
    call, parts, rows = _of_grid(given, _noted(given["philox_seed"]))
    gradient = _rows(alias(given["grad_out" if "grad_out" in given else "grad_out_"]))
    *values, of_scores = backward(call, parts, gradient, *rows)
    likes = [given["query"], given["key"], given["value"]]
    if func is aten._scaled_dot_product_cudnn_attention_backward.default:
        launch(2)
        device = device_of(likes)
        return tuple(
            on_device(_grid(value, like).to(like.dtype), device) for value, like in zip(values, likes, strict=True)
        )
    out = func(*args, **kwargs)
    fill(list(out[:3]), [_grid(value, like) for value, like in zip(values, likes, strict=True)])
    if len(out) > 3 and out[3] is not None and out[3].numel():
        whole = torch.stack(of_scores)
        summed = [axis for axis in range(4) if given["attn_bias"].shape[axis] == 1 and whole.shape[axis] != 1]
        alias(out[3]).copy_(whole.sum(summed, keepdim=True) if summed else whole)
    return out


def _of_grid(given: dict[str, Any], key: int) -> tuple[Call, list[Part], list[Tensor]]:
    q, k, v = (alias(given[name]) for name in ("query", "key", "value"))
    bias = alias(given.get("attn_bias"))
    if bias is not None and bias.dtype == torch.bool:
        bias = torch.zeros(bias.shape).masked_fill(~bias, float("-inf"))
    if bias is not None and not bias.numel():
        bias = None
    call = Call(given["scale"] or q.shape[-1] ** -0.5, None, None, given["dropout_p"], key)
    parts = _by_batch(q, k, bias)
    if given["is_causal"]:  # aligned at the first key here, unlike in flash attention's own operator
        ahead = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
        causal = torch.zeros(ahead.shape).masked_fill(ahead, float("-inf"))[None]
        for part in parts:
            part.bias = causal if part.bias is None else part.bias + causal
    return call, parts, [_rows(x) for x in (q, k, v)]


def _outputs(func: Any) -> list[str]:
    return [result.name for result in func._schema.returns]


def drops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator of attention drops anything; where it does not, it draws no numbers on a GPU."""
    return bool(_named(func, args, kwargs).get("dropout_p"))


def _new_key(given: dict[str, Any]) -> int:
    """Drawn from the CPU's generator, which stands in for the device's while an operator runs (`draws`)."""
    return int(torch.randint(2**31, ())) if given["dropout_p"] else 0


def varlen(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.nn.attention.varlen`: an operator written in Python, whose call of flash attention is seen by itself."""
    given = _named(func, args, kwargs)
    for name in ("seqused_k", "block_table"):
        assert given.get(name) is None, f"varlen attention with {name} is not emulated"
    left, right = _window(given["is_causal"], *(given["window_size"] or [-1, -1]))
    q, k, v = (given[name] for name in ("query", "key", "value"))
    keys = given["cu_seq_q"] if given["cu_seq_k"] is None else given["cu_seq_k"]
    common = (given["max_q"], given["max_k"], 0.0, given["is_causal"])
    sides = {"window_size_left": -1 if left is None else left, "window_size_right": -1 if right is None else right}
    if func is torch.ops.torch_attn._varlen_attn.default:
        operator = aten._flash_attention_forward.default
        made = flash(operator, (q, k, v, given["cu_seq_q"], keys, *common, False), {"scale": given["scale"], **sides})
        return made[0], made[1], made[2]
    operator = aten._flash_attention_backward.default
    saved = (given["grad_out"], q, k, v, given["out"], given["lse"], given["cu_seq_q"], keys)
    unused = torch.empty(0, device=q.device)
    return flash_backward(operator, (*saved, *common, given["rng_state"], unused), {"scale": given["scale"], **sides})


def emulated() -> Iterator[tuple[Any, Any]]:
    """Operators and what computes them."""
    yield aten._flash_attention_forward.default, flash
    yield aten._flash_attention_backward.default, flash_backward
    for name in ("flash", "efficient", "cudnn"):
        yield getattr(aten, f"_scaled_dot_product_{name}_attention").default, grid
        yield getattr(aten, f"_scaled_dot_product_{name}_attention_backward").default, grid_backward
    import torch.nn.attention.varlen  # its operators exist once it is imported

    yield torch.ops.torch_attn._varlen_attn.default, varlen
    yield torch.ops.torch_attn._varlen_attn_backward.default, varlen

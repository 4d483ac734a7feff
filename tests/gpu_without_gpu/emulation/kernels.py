"""Operators that the CPU lacks, computes with other arguments, or that on CUDA go to a library that is not emulated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tests.gpu_without_gpu.emulation.counting import launch
from tests.gpu_without_gpu.emulation.memory import alias, device_of, fill, on_cpu, on_device, unset

aten = torch.ops.aten
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


# ---- memory: run on CUDA alone ----


def only_there(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """About memory and not its values."""
    return func(*args, **kwargs)


def fresh(func: Any, args: Args, kwargs: Kwargs) -> Any:
    return unset(func(*args, **kwargs))


def copied(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """`to`: the transfer is real; what changes a dtype or an order is a kernel, so the values are written again."""
    out = func(*args, **kwargs)
    alias(out).copy_(alias(args[0]))
    return out


def copied_into(func: Any, args: Args, kwargs: Kwargs) -> Any:
    func(*args, **kwargs)
    alias(args[0]).copy_(alias(args[1]))
    return args[0]


# ---- convolutions: cuDNN ----


def convolution(func: Any, args: Args, kwargs: Kwargs) -> Any:
    device = device_of(args[:3])
    launch()
    return on_device(func(*on_cpu(args), **kwargs), device)


def convolution_backward(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """One kernel for each gradient that is asked for."""
    device = device_of(args[:3])
    launch(sum(args[-1]))
    return on_device(func(*on_cpu(args), **kwargs), device)


# ---- recurrent cells: CUDA has them fused, the CPU does not ----


def _cell_inputs(args: Args) -> tuple[Tensor, Tensor, Tensor]:
    """The gates from the input and from the state, with their biases, and the state."""
    given, recurrent, state, *biases = (None if x is None else alias(x).float() for x in args)
    for bias, gates in zip(biases, (given, recurrent), strict=False):
        if bias is not None:
            gates += bias
    return given, recurrent, state


def gru_cell(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """torch.nn.GRUCell's equations; the workspace keeps r, z, n, h and the state's part of n."""
    out = func(*args, **kwargs)
    given, recurrent, state = _cell_inputs(args)
    (ri, zi, ni), (rh, zh, nh) = given.chunk(3, 1), recurrent.chunk(3, 1)
    r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
    n = torch.tanh(ni + r * nh)
    fill(out, (n + z * (state - n), torch.cat([r, z, n, state, nh], 1)))
    return out


def gru_cell_backward(func: Any, args: Args, kwargs: Kwargs) -> Any:
    out = func(*args, **kwargs)
    grad, workspace, has_bias = alias(args[0]).float(), alias(args[1]).float(), args[2]
    r, z, n, state, nh = workspace.chunk(5, 1)
    dn = grad * (1 - z) * (1 - n * n)
    dz = grad * (state - n) * z * (1 - z)
    dr = dn * nh * r * (1 - r)
    given, recurrent = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
    biases = (given.sum(0), recurrent.sum(0)) if has_bias else ()
    fill(out, (given, recurrent, grad * z, *biases))
    return out


def lstm_cell(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """torch.nn.LSTMCell's equations; the workspace keeps i, f, g and o."""
    out = func(*args, **kwargs)
    given, recurrent, cell = _cell_inputs(args)
    i, f, g, o = (given + recurrent).chunk(4, 1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cell = f * cell + i * g
    fill(out, (o * torch.tanh(cell), cell, torch.cat([i, f, g, o], 1)))
    return out


def lstm_cell_backward(func: Any, args: Args, kwargs: Kwargs) -> Any:
    out = func(*args, **kwargs)
    grad_hidden, grad_cell, before, cell, workspace = (None if x is None else alias(x).float() for x in args[:5])
    i, f, g, o = workspace.chunk(4, 1)
    hidden = torch.zeros_like(cell) if grad_hidden is None else grad_hidden
    top = torch.tanh(cell)
    dc = hidden * o * (1 - top * top) + (0 if grad_cell is None else grad_cell)
    gates = [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), hidden * top * o * (1 - o)]
    together = torch.cat(gates, 1)
    fill(out, (together, dc * f, together.sum(0) if args[5] else None))
    return out


# ---- elementwise ----


def rms_norm_backward(func: Any, args: Args, kwargs: Kwargs) -> Any:
    out = func(*args, **kwargs)
    grad, x, inverse = (alias(args[n]).float() for n in (0, 1, 3))
    weight = None if args[4] is None else alias(args[4]).float()
    scaled, unit = grad if weight is None else grad * weight, x * inverse
    size = x.shape[-1]
    fill(
        [out[0], out[1]],
        [
            inverse * (scaled - unit * (unit * scaled).mean(-1, keepdim=True)),
            (grad * unit).reshape(-1, size).sum(0),
        ],
    )
    return out


def log_sigmoid_backward(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """The CPU's reads a buffer that CUDA's does not fill."""
    out = func(*args, **kwargs)
    fill(out, alias(args[0]) * torch.sigmoid(-alias(args[1])))
    return out


def softmax(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """With `half_to_float`, which the CPU lacks."""
    out = func(*args, **kwargs)
    x, dim, widens = args
    fill(out, func(alias(x).float() if widens else alias(x), dim, False))
    return out


def softmax_backward(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """The gradient of a softmax in float32 of half numbers is half: the same CPU kernel, and a cast."""
    out = func(*args, **kwargs)
    grad, made, dim, _ = args
    fill(out, func(alias(grad), alias(made), dim, grad.dtype))
    return out


def widening_product(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """A product of half numbers that returns float32 (`mm(a, b, out_dtype)`)."""
    out = func(*args, **kwargs)
    tensors = [alias(x).float() for x in args if isinstance(x, Tensor)]
    fill(out, func.overloadpacket.default(*tensors, **kwargs))
    return out


def emulated() -> Iterator[tuple[Any, Any]]:
    """Operators and what computes them; an operator without tensors to compute is in `only_there`."""
    memory = "empty.memory_format empty_strided empty_like new_empty new_empty_strided"
    about = (
        "is_pinned _pin_memory record_stream set_ resize_ _fused_sdp_choice _local_scalar_dense _has_same_storage_numel"
    )
    for names, function in ((memory, fresh), (about, only_there)):
        for name in names.split():
            packet, _, overload = name.partition(".")
            found = getattr(aten, packet)
            for one in [overload] if overload else found.overloads():
                if not one.endswith("out"):
                    yield getattr(found, one), function
    yield aten._to_copy.default, copied
    yield aten.copy_.default, copied_into
    yield aten.convolution.default, convolution
    yield aten.convolution_backward.default, convolution_backward
    yield aten._thnn_fused_gru_cell.default, gru_cell
    yield aten._thnn_fused_gru_cell_backward.default, gru_cell_backward
    yield aten._thnn_fused_lstm_cell.default, lstm_cell
    yield aten._thnn_fused_lstm_cell_backward_impl.default, lstm_cell_backward
    yield aten._fused_rms_norm_backward.default, rms_norm_backward
    yield aten.log_sigmoid_backward.default, log_sigmoid_backward
    yield aten._softmax.default, softmax
    yield aten._log_softmax.default, softmax
    yield aten._softmax_backward_data.default, softmax_backward
    yield aten._log_softmax_backward_data.default, softmax_backward
    for name in ("mm", "bmm", "addmm", "baddbmm"):
        if "dtype" in getattr(aten, name).overloads():
            yield getattr(aten, name).dtype, widening_product

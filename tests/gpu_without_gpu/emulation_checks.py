"""What `test_emulation.py` asserts, measured in a process that sees the pretend device: emulation_checks OUTPUT.json"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gpu_without_gpu.emulation.mode import install

EMULATION = install()

import torch  # noqa: E402
import torch.nn.attention.flex_attention as flex_module  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention.varlen import varlen_attn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests.gpu_without_gpu.emulation.counting import recorded  # noqa: E402

LENGTHS = [5, 1, 9]
Function = Callable[..., Tensor]


def difference(
    function: Function, inputs: list[Tensor], reference: Function | None = None, half: bool = False
) -> float:
    """The largest relative difference of outputs and of the inputs' gradients: device against CPU in float32."""
    results = []
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16 if half else torch.float32)):
        leaves = [x.to(device, dtype if x.is_floating_point() else x.dtype) for x in inputs]
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in leaves]
        out = (reference if reference and device == "cpu" else function)(*leaves)
        (out.float() * torch.linspace(-1, 1, out.numel(), device=device).view(out.shape)).sum().backward()
        results.append([out.detach().float().cpu(), *(x.grad.float().cpu() for x in leaves if x.grad is not None)])
    assert len(results[0]) == len(results[1])
    return max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-6)) for a, b in zip(*results, strict=True))


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape).bfloat16().float()  # numbers that bfloat16 has too


# ---- attention over offsets ----


def offsets(lengths: list[int], device: Any) -> Tensor:
    return torch.tensor([0, *lengths], device=device).cumsum(0, dtype=torch.int32)


def flash(q: Tensor, k: Tensor, v: Tensor, keys: list[int] = LENGTHS, causal: bool = False, **more: Any) -> Tensor:
    dropout = more.pop("dropout", 0.0)
    cumulative = offsets(LENGTHS, q.device), offsets(keys, q.device)
    return torch.ops.aten._flash_attention_forward(
        q, k, v, *cumulative, max(LENGTHS), max(keys), dropout, causal, False, **more
    )[0]


def one_by_one(keys: list[int] = LENGTHS, left: int | None = None, right: int | None = None) -> Function:
    """The reference: scaled_dot_product_attention of each sequence, with the mask spelled out."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        for a, b, c in zip(q.split(LENGTHS), k.split(keys), v.split(keys), strict=True):
            mask = torch.ones(len(a), len(b), dtype=torch.bool)
            for i in range(len(a)):
                for j in range(len(b)):
                    distance = j - (i + len(b) - len(a))
                    mask[i, j] = (right is None or distance <= right) and (left is None or -distance <= left)
            b, c = (x.repeat_interleave(a.shape[1] // x.shape[1], 1) for x in (b, c))
            made = F.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (a, b, c)), attn_mask=mask)
            parts.append(made[0].transpose(0, 1))
        return torch.cat(parts)

    return run


def packed(rows: int = sum(LENGTHS), heads: int = 2) -> list[Tensor]:
    return [randn(sum(LENGTHS), 2, 16), randn(rows, heads, 16), randn(rows, heads, 16)]


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """With dropout forward and backward must use the same weights: shown by values that sum up to themselves."""
    torch.manual_seed(3)
    return flash(q, k, v, dropout=0.25)


def flash_dropout() -> dict[str, float]:
    """The share of weights that drop, and the gradient of the values against the weights that were used."""
    rows = sum(LENGTHS)
    q, k, _ = (x.cuda().bfloat16() for x in packed())
    zero = torch.zeros_like(q)  # all scores alike
    value = torch.ones_like(k).requires_grad_()
    longest = [torch.zeros(256, 2, 256, device="cuda", dtype=torch.bfloat16)] * 2
    one = torch.eye(256, device="cuda", dtype=torch.bfloat16)[:, None].expand(256, 2, 256).contiguous()
    whole = torch.tensor([0, 256], device="cuda", dtype=torch.int32)
    kept = torch.ops.aten._flash_attention_forward(
        *longest, one, whole, whole, 256, 256, 0.25, False, False, scale=1.0
    )[0]
    torch.manual_seed(3)
    out = flash(zero, k, value, dropout=0.25)
    out.float().sum().backward()
    per_head = value.grad.float().sum((0, 2)) / 16  # the sum over keys of weights that stayed
    seen = out.detach().float().sum(0)[:, 0]
    assert rows == len(out)
    return {
        "share": float((kept == 0).float().mean()),
        "gradient": float(((per_head - seen) / seen).abs().max()),
    }


# ---- attention on a grid, flex ----


def grids() -> list[Tensor]:
    return [randn(2, 3, 12, 16), randn(2, 3, 12, 16), randn(2, 3, 12, 16)]


def sdpa(backend: SDPBackend, mask: Tensor | None = None, causal: bool = False) -> Function:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend if q.is_cuda else SDPBackend.MATH):
            bias = None if mask is None else mask.to(q.device, q.dtype)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)

    return run


def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal, in blocks of 4: the formula reads partial and full blocks of the mask."""

    def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    mask = flex_module.create_block_mask(causal, None, None, 12, 12, device=q.device.type, BLOCK_SIZE=4)
    return flex_module.flex_attention(q, k, v, block_mask=mask)


def flex_launches() -> dict[str, int]:
    q, k, v = (x.cuda().bfloat16().requires_grad_() for x in grids())
    with recorded() as forward:
        out = flex_module.flex_attention(q, k, v)
    gradient = torch.ones_like(out)
    with recorded() as backward:
        torch.autograd.grad(out, (q, k, v), gradient)
    return {"forward": forward.counts["launches"], "backward": backward.counts["launches"]}


# ---- modules and other operators ----


def module(make: Callable[[], nn.Module]) -> Function:
    def run(x: Tensor, *weights: Tensor) -> Tensor:
        torch.manual_seed(1)
        made = make().to(x.device)
        for parameter, weight in zip(made.parameters(), weights, strict=True):
            parameter.requires_grad_(False).copy_(weight)
        out = torch.func.functional_call(made, dict(zip(dict(made.named_parameters()), weights, strict=True)), (x,))
        return out[0] if isinstance(out, tuple) else out

    return run


def weighted(make: Callable[[], nn.Module], x: Tensor) -> tuple[Function, list[Tensor]]:
    return module(make), [x, *(parameter.detach().clone() for parameter in make().parameters())]


def stepped(**options: Any) -> Function:
    """Weights after three steps of AdamW."""

    def run(x: Tensor) -> Tensor:
        weight = nn.Parameter(torch.ones(4, 3, device=x.device))
        optimizer = torch.optim.AdamW([weight], lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            (x.detach() @ weight).pow(2).sum().backward()
            optimizer.step()
        return weight.detach() * x.sum() / x.sum().detach()

    return run


MASK = torch.tensor([True, False, True, True, False])


def scattered(x: Tensor, y: Tensor) -> Tensor:
    return x.masked_scatter(MASK.to(x.device)[:, None], y)


def picked(x: Tensor) -> Tensor:
    return x[MASK.to(x.device)]


def differences() -> tuple[dict[str, float], dict[str, float]]:
    """Of each operator, and what is allowed: float32 is exact up to rounding, 16 bit up to its own."""
    past = [7, 4, 9]
    bias = randn(2, 1, 12, 12)
    half: dict[str, tuple[Function, list[Tensor], Function | None]] = {
        "flash": (flash, packed(), one_by_one()),
        "flash causal": (lambda *x: flash(*x, causal=True), packed(), one_by_one(right=0)),
        "flash window": (
            lambda *x: flash(*x, window_size_left=3, window_size_right=1),
            packed(),
            one_by_one(left=3, right=1),
        ),
        "flash causal, keys of a cache": (
            lambda *x: flash(*x, keys=past, causal=True),
            packed(sum(past)),
            one_by_one(past, right=0),
        ),
        "flash, heads share keys": (flash, packed(heads=1), one_by_one()),
        "varlen": (
            lambda q, k, v: varlen_attn(q, k, v, *[offsets(LENGTHS, q.device)] * 2, 9, 9, window_size=(-1, 0)),
            packed(),
            one_by_one(right=0),
        ),
        "sdpa flash": (sdpa(SDPBackend.FLASH_ATTENTION), grids(), None),
        "sdpa efficient with a mask": (sdpa(SDPBackend.EFFICIENT_ATTENTION, bias), grids(), None),
        "sdpa cudnn causal": (sdpa(SDPBackend.CUDNN_ATTENTION, causal=True), grids(), None),
        "flex with a full block": (flex, grids(), None),
        "softmax of halves in float32": (lambda x: F.softmax(x, -1, dtype=torch.float32), [randn(4, 6)], None),
    }
    single: dict[str, tuple[Function, list[Tensor]]] = {
        "convolution": weighted(lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), randn(2, 3, 8, 8)),
        "GRU": weighted(lambda: nn.GRU(4, 6, 2, bidirectional=True), randn(5, 2, 4)),
        "LSTM": weighted(lambda: nn.LSTM(4, 6, 2, batch_first=True), randn(2, 5, 4)),
        "masked_scatter": (scattered, [randn(5, 3), randn(4, 3)]),
        "index by a mask": (picked, [randn(5, 3)]),
        "rms_norm": (lambda x, w: F.rms_norm(x, (6,), w, 1e-6), [randn(4, 6), randn(6)]),
        "log_sigmoid": (F.logsigmoid, [randn(4, 6)]),
        "AdamW fused": (stepped(fused=True), [randn(5, 4)]),
        "AdamW foreach": (stepped(foreach=True), [randn(5, 4)]),
    }
    found = {name: difference(f, inputs, reference, half=True) for name, (f, inputs, reference) in half.items()}
    found |= {name: difference(f, inputs) for name, (f, inputs) in single.items()}
    return found, dict.fromkeys(half, 2e-2) | dict.fromkeys(single, 1e-5)


# ---- random numbers, refusals, memory, waits ----


def draws() -> dict[str, bool]:
    def both(function: Function) -> bool:
        torch.manual_seed(5)
        here = [function("cpu") for _ in range(3)]
        torch.manual_seed(5)
        there = [function("cuda").cpu() for _ in range(3)]
        return all(torch.equal(a, b) for a, b in zip(here, there, strict=True))

    weights = torch.rand(3, 7)
    x = torch.ones(64, device="cuda", requires_grad=True)
    plain = checkpoint(lambda y: F.dropout(y, 0.5) * y, x, use_reentrant=False)
    plain.sum().backward()
    torch.manual_seed(5)
    first, second = torch.rand(4, device="cuda"), torch.rand(4, device="cuda")
    return {
        "rand": both(lambda device: torch.rand(5, device=device)),
        "multinomial": both(lambda device: torch.multinomial(weights.to(device), 2)),
        "dropout by checkpoint": torch.equal(x.grad.cpu(), 2 * plain.detach().cpu()),
        "continues": not torch.equal(first.cpu(), second.cpu()),
    }


def refused() -> dict[str, bool]:
    here, there = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 4, 4, device="cuda")
    attempts: dict[str, Callable[[], Any]] = {
        "add": lambda: here + there,
        "matmul": lambda: here @ there,
        "masked_select": lambda: there.masked_select(here > 0),
        "convolution": lambda: F.conv2d(there, here),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = False
        except RuntimeError as error:
            found[name] = "same device" in str(error) or "expected device" in str(error).lower()
    return found


def unwritten() -> dict[str, bool]:
    number = torch.empty(3, device="cuda").sum().isnan().item()
    try:
        torch.ones(4, device="cuda")[torch.empty(2, dtype=torch.long, device="cuda")]
        index = False
    except (IndexError, RuntimeError):
        index = True
    return {"float": bool(number), "index": index}


def waits() -> dict[str, int]:
    x = torch.ones(4, 3, device="cuda")
    mask, counts = x[:, 0] > 0, torch.tensor([1, 2], device="cuda")
    pinned = torch.ones(4).pin_memory()
    actions: dict[str, Callable[[], Any]] = {
        "item": lambda: x.sum().item(),
        "from a list": lambda: torch.tensor([1.0, 2.0], device="cuda"),
        "from pinned memory": lambda: pinned.to("cuda", non_blocking=True),
        "nonzero": lambda: mask.nonzero(),
        "index by a mask": lambda: x[mask],
        "masked fill": lambda: x.masked_fill(mask[:, None], 0.0),
        "repeat_interleave": lambda: counts.repeat_interleave(counts),
        "repeat_interleave, size given": lambda: counts.repeat_interleave(counts, output_size=3),
        "multinomial": lambda: torch.multinomial(x, 1),
        "matmul": lambda: x @ x.T,
    }
    found = {}
    for name, action in actions.items():
        with recorded() as record:
            action()
        found[name] = record.waits
        assert record.waits == sum(record.sites.values())
    return found


def backward_sites() -> list[str]:
    x = torch.ones(5, 3, device="cuda", requires_grad=True)
    with recorded() as record:
        picked(x).sum().backward()
    return list(record.sites)


def memory() -> dict[str, Any]:
    torch.cuda.reset_peak_memory_stats()
    kept = torch.empty(2**29, device="cuda", dtype=torch.int8)
    del kept
    before = torch.cuda.memory_allocated()
    with torch.utils._python_dispatch._disable_current_modes():  # memory that is not touched
        kept = torch.empty(2**31, device="cuda", dtype=torch.int8)
        del kept
        try:
            torch.empty(80 * 2**30, device="cuda", dtype=torch.int8)
            full = False
        except torch.OutOfMemoryError:
            full = True
    return {"out of memory": full, "peak GiB": round((torch.cuda.max_memory_allocated() - before) / 2**30, 2)}


def main(output: Path) -> None:
    torch.manual_seed(0)
    about = [torch.cuda.get_device_name(), list(torch.cuda.get_device_capability()), torch.cuda.device_count()]
    with EMULATION:
        measured, tolerances = differences()
        found = {
            "device": about,
            "differences": measured,
            "tolerances": tolerances,
            "draws": draws(),
            "dropout": flash_dropout(),
            "refused": refused(),
            "unwritten": unwritten(),
            "waits": waits(),
            "backward sites": backward_sites(),
            "flex launches": flex_launches(),
            "memory": memory(),
        }
    output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

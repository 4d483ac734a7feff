"""Every attention kernel on the card next to the dense one on the CPU: outputs, gradients, dropout.

The reference is the dense kernel in float32 on the CPU, on the same numbers (for bfloat16: rounded to it first). An
error is the largest difference as a share of the largest number of the reference.

Under dropout no kernel draws the numbers of another. Over many draws the mean is the output without dropout. And for a
drawn mask the output is linear in the values: out = M v. So <out, out> = <v, M^T out>, where M^T out is the gradient of
v for the gradient `out`, if the backward pass has the mask of the forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from pipelines.gpu.record import CheckRecord, Setting, Size
from workbench.core.errors import WorkbenchError
from workbench.models.attention.call import KERNELS, Request, attend, use_kernel
from workbench.models.attention.score_bias import ScoreBias
from workbench.models.context import Context
from workbench.models.layout import Layout
from workbench.models.score_biases.alibi import AlibiBias
from workbench.models.score_biases.buckets import BucketsBias
from workbench.sequences.batch import Batch, Stream
from workbench.sequences.pattern import pattern_of

HEADS, WIDTH, WINDOW = 4, 64, 8
LENGTHS: dict[Size, list[int]] = {"base": [250, 17, 128, 3, 64, 1, 200], "tiny": [20, 7, 33, 1]}
KEYS: dict[Size, list[int]] = {"base": [31, 300, 1, 90, 64, 12, 77], "tiny": [5, 21, 1, 30]}
"""Lengths of the keys where they are not the queries."""
FAR: dict[Size, tuple[int, int, int, int]] = {"base": (4096, 257, 16, 128), "tiny": (16, 3, 2, 64)}
"""Length, sequences, heads and width of the case of large offsets: the last row begins beyond 2^31 numbers."""
FAR_NAME, FAR_BYTES = "large offsets", 60e9
"""The memory that it needs."""
TOLERANCES = {torch.float32: (1e-4, 2e-4), torch.bfloat16: (2e-2, 3e-2)}
"""Of outputs and of gradients. bfloat16 keeps 8 bits, and kernels round the weights to it before the values."""
DRAWS, RATE, SPREAD, SCALE, MASK = 200, 0.3, 6.0, 0.02, 0.02
"""Dropout: so many draws; each mean within so many of its standard errors, all of them together within a share; what
<out, out> and <v, dv> may differ by, where two masks differ by more than a tenth."""


@dataclass(frozen=True)
class Case:
    """A pattern of attention: the visibility integers of one sequence from its length, and what layers add."""

    name: str
    integers: Callable[[int, torch.Generator], dict[str, Tensor]]
    window: int | None = None
    score_bias: Callable[[], ScoreBias] | None = None
    dtypes: tuple[torch.dtype, ...] = field(default=(torch.bfloat16, torch.float32))
    width: int = WIDTH
    cross: bool = False


def full(length: int, draws: torch.Generator) -> dict[str, Tensor]:
    """All see all."""
    return {}


def causal(length: int, draws: torch.Generator) -> dict[str, Tensor]:
    """Each row sees those before it."""
    return {"rank": torch.arange(length)}


def prefix(length: int, draws: torch.Generator) -> dict[str, Tensor]:
    """The first half is seen by all, the second is causal."""
    return {"rank": (torch.arange(length) - length // 2 + 1).clamp_min(0)}


def permutation(length: int, draws: torch.Generator) -> dict[str, Tensor]:
    """A context that all see, and a sixth of the rows in an order that is drawn; some are hidden again from then on."""
    rank = torch.zeros(length, dtype=torch.long)
    chosen = torch.randperm(length, generator=draws)[: length // 6]
    rank[chosen] = 1 + torch.arange(len(chosen))
    return {"rank": rank, "until": torch.where(rank > 1, rank + 2, 0)}


def tree(length: int, draws: torch.Generator) -> dict[str, Tensor]:
    """A trunk, and branches of four rows that hang on one of its rows each."""
    place = torch.arange(length)
    branch = torch.where(place % 12 >= 8, place // 12 + 1, 0)
    hangs = torch.where(branch > 0, branch, torch.where(place % 12 == 7, place // 12 + 1, 0))
    return {"branch": branch, "anchor": hangs}


def packed(length: int, draws: torch.Generator) -> dict[str, Tensor]:
    """Documents of up to 15 rows, each causal."""
    place = torch.arange(length)
    return {"doc": 1 + place // 15, "rank": place % 15}


CASES = (
    Case("full", full),
    Case("causal", causal),
    Case("prefix", prefix),
    Case("packed", packed),
    Case("tree", tree),
    Case("permutation", permutation),
    Case("window", full, window=WINDOW),
    Case("causal, buckets", causal, score_bias=lambda: BucketsBias(HEADS)),
    Case("full, alibi", full, score_bias=lambda: AlibiBias(HEADS), dtypes=(torch.bfloat16,)),
    Case(
        "packed, window, buckets",
        packed,
        window=WINDOW,
        score_bias=lambda: BucketsBias(HEADS),
        dtypes=(torch.bfloat16,),
    ),
    Case("to other rows", full, cross=True),
    Case("full, width 80", full, width=80, dtypes=(torch.bfloat16,)),
    Case("causal, width 96", causal, width=96, dtypes=(torch.bfloat16,)),
    Case("causal, width 128", causal, width=128, dtypes=(torch.bfloat16,)),
)


def run(setting: Setting, record: CheckRecord) -> None:
    """All cases and kernels, bfloat16 first, then dropout and large offsets, then float32."""
    by_name = {f"{case.name}, {_word(dtype)}": (case, dtype) for dtype in TOLERANCES for case in CASES}
    dropout = [f"dropout {name}" for name in KERNELS if name != "dense"]
    names = [name for name, (case, dtype) in by_name.items() if dtype in case.dtypes]
    first = [name for name in names if name.endswith(_word(torch.bfloat16))]
    refused: dict[str, list[str]] = defaultdict(list)
    for name in record.in_time([*first, *dropout, FAR_NAME, *(name for name in names if name not in first)]):
        if name in dropout:
            kernel = name.removeprefix("dropout ")
            with record.guarded(name):
                _mean_under_dropout(kernel, setting, record)
                _mask_under_dropout(kernel, setting, record)
        elif name == FAR_NAME:
            with record.guarded(name):
                _far(setting, record)
        else:
            _compare(name, *by_name[name], setting, record, refused)
    for reason, items in refused.items():
        record.note(f"not compared, as {reason}: {'; '.join(items)}")
    for kernel in () if record.skipped else KERNELS:
        if not any(check.name.endswith(f", {kernel}") for check in record.checks):
            record.check(kernel, False, "it refused every case", "some case")


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _compare(
    name: str, case: Case, dtype: torch.dtype, setting: Setting, record: CheckRecord, refused: dict[str, list[str]]
) -> None:
    """A case on every kernel of the card; `refused` takes the reasons of those that cannot do it."""
    lengths = LENGTHS[setting.size]
    inputs = [
        x.to(dtype) for x in _numbers(sum(lengths), sum(KEYS[setting.size] if case.cross else lengths), case.width)
    ]
    expected = attended(case, "dense", [x.float() for x in inputs], torch.device("cpu"), setting.size)
    for kernel in KERNELS:
        item = f"{name}, {kernel}"
        torch.compiler.reset()  # each case is code of its own to flex, and torch compiles few of a function
        with record.guarded(item):
            try:
                found = attended(case, kernel, inputs, setting.device, setting.size)
            except WorkbenchError as error:
                refused[str(error)].append(name)
                continue
            errors = [_error(one, other) for one, other in zip(found, expected, strict=True)]
            output, gradient = errors[0], max(errors[1:])
            limits = TOLERANCES[dtype]
            line = f"output {output:.1e}, gradients {gradient:.1e}"
            allowed = f"<= {limits[0]:g}, {limits[1]:g}"
            right = output <= limits[0] and gradient <= limits[1]
            record.check(item, right, line, allowed, output=output, gradient=gradient)


def attended(case: Case, kernel: str, inputs: list[Tensor], device: torch.device, size: Size) -> list[Tensor]:
    """The output of attention and the gradients of q, k, v and what the score bias learns, on the CPU in float32.

    Raises:
        WorkbenchError: the kernel cannot do what the case asks for, or does not suit the numbers.
    """
    torch.manual_seed(0)
    score_bias = None if case.score_bias is None else case.score_bias().to(device)
    learned = [] if score_bias is None else list(score_bias.parameters())
    layout = layout_of(case, LENGTHS[size], device)
    keys = layout_of(case, KEYS[size], device) if case.cross else layout
    q, k, v = (x.to(device).requires_grad_() for x in inputs)
    asked = kernel != "banded" and device.type == "cuda"  # it can do what it does not suit: that costs time alone
    if asked and not KERNELS[kernel].suits(Request(q, k, v, layout, keys, window=case.window)):
        raise WorkbenchError(f"the kernel {kernel!r} does not suit {q.dtype} here")
    with use_kernel(kernel):
        out, _ = attend(q, k, v, layout, keys, window=case.window, score_bias=score_bias)
    weights = torch.linspace(-1, 1, out.numel(), device=device).view_as(out)
    loss, leaves = (out.float() * weights).sum(), [q, k, v, *learned]
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return [x.detach().float().cpu() for x in (out, *gradients)]


def layout_of(case: Case, lengths: list[int], device: torch.device) -> Layout:
    """The layout of a batch with the case's visibility integers; the host knows of them what the loader would."""
    draws = torch.Generator().manual_seed(0)
    parts = [case.integers(length, draws) for length in lengths]
    fields = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    fields["position_ids"] = torch.cat([torch.arange(length) for length in lengths])
    stream = Stream(fields, torch.tensor([0, *accumulate(lengths)]), lengths)
    stream = stream.knowing(pattern_of(lengths, {name: values.numpy() for name, values in stream.integers.items()}))
    return Context(Batch({"text": stream}).to(device)).layout("text")


def _numbers(queries: int, keys: int, width: int = WIDTH) -> Iterator[Tensor]:
    """q, k, v [rows, heads, width]."""
    for seed, rows in enumerate((queries, keys, keys)):
        yield torch.randn(rows, HEADS, width, generator=torch.Generator().manual_seed(seed))


def _error(found: Tensor, expected: Tensor) -> float:
    """Infinite where something is not a number, since no comparison with NaN is true."""
    share = (found - expected).abs().max() / expected.abs().max().clamp_min(1e-6)
    return float(share.nan_to_num(nan=float("inf")))


def _mean_under_dropout(kernel: str, setting: Setting, record: CheckRecord) -> None:
    """Over many draws, the mean with dropout is the output without it, and two draws differ."""
    case, layout, (q, k, v) = _dropped(kernel, setting)
    window = case.window
    with torch.no_grad(), use_kernel(kernel):
        exact = attend(q, k, v, layout, layout, window=window)[0].float()
        found = [attend(q, k, v, layout, layout, window=window, dropout=RATE)[0].float() for _ in range(DRAWS)]
    draws = torch.stack(found)
    # a mean of rounded numbers: half a step of bfloat16 at the largest is no error of dropout
    rounding = float(exact.abs().max()) * 2**-9
    spread = draws.std(0) / DRAWS**0.5 + rounding
    mean = draws.mean(0)
    error = float(((mean - exact).abs() / spread).max())
    scale = float((mean * exact).sum() / exact.square().sum())
    differ = not torch.equal(draws[0], draws[1])
    line = f"mean {scale:.3f} of the exact output, off by {error:.1f} standard errors at most"
    line += ", draws differ" if differ else ", draws are equal"
    allowed = f"1 +- {SCALE:g}, <= {SPREAD:g}, draws differ"
    right = differ and error <= SPREAD and abs(scale - 1) <= SCALE
    record.check(f"dropout {kernel} ({case.name})", right, line, allowed, errors=error, scale=scale)


def _dropped(kernel: str, setting: Setting) -> tuple[Case, Layout, list[Tensor]]:
    """A case that the kernel can do, its layout, and q, k, v on the card; the generators begin anew."""
    case = next(case for case in CASES if case.name == {"varlen": "full", "banded": "window"}.get(kernel, "causal"))
    layout = layout_of(case, LENGTHS[setting.size], setting.device)
    torch.manual_seed(0)
    return case, layout, [x.to(setting.device, torch.bfloat16) for x in _numbers(layout.rows, layout.rows)]


def _mask_under_dropout(kernel: str, setting: Setting, record: CheckRecord) -> None:
    """The backward pass drops what the forward pass dropped."""
    case, layout, inputs = _dropped(kernel, setting)
    q, k, v = (x.requires_grad_() for x in inputs)
    with use_kernel(kernel):
        out, _ = attend(q, k, v, layout, layout, window=case.window, dropout=RATE)
    (gradient,) = torch.autograd.grad(out, v, out.detach())
    whole = out.detach().double().square().sum()
    share = float(((v.detach().double() * gradient.double()).sum() / whole - 1).abs().nan_to_num(nan=float("inf")))
    record.below(f"dropout {kernel} ({case.name}), one mask in both passes", share, MASK)


def _far(setting: Setting, record: CheckRecord) -> None:
    """The last of many sequences has the output and gradients that it has alone; all others are zeros."""
    length, sequences, heads, width = FAR[setting.size]
    room = torch.cuda.get_device_properties(setting.device).total_memory if setting.device.type == "cuda" else 0
    if setting.size == "base" and room < FAR_BYTES:
        record.note(f"{FAR_NAME}: not checked, as that takes {FAR_BYTES / 1e9:.0f} GB")
        return
    made = [torch.randn(length, heads, width, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    found = []
    for count in (1, sequences):
        layout = layout_of(CASES[0], [length] * count, setting.device)
        inputs = [torch.zeros(length * count, heads, width, dtype=torch.bfloat16, device=setting.device) for _ in made]
        for whole, last in zip(inputs, made, strict=True):
            whole[-length:] = last.to(whole)
        q, k, v = (x.requires_grad_() for x in inputs)
        out, _ = attend(q, k, v, layout, layout)
        gradients = torch.autograd.grad(out, (q, k, v), out.detach())
        found.append([x.detach()[-length:].float().cpu() for x in (out, *gradients)])
        del inputs, q, k, v, out, gradients
    error = max(_error(one, other) for one, other in zip(found[1], found[0], strict=True))
    beyond = length * (sequences - 1) * heads * width / 2**31
    record.below(f"{FAR_NAME}, the last sequence at {beyond:.2g} x 2^31", error, TOLERANCES[torch.bfloat16][1])

"""The one attention call: rows in, rows out, with the visibility of the layouts.

Each kernel declares its limits. The choice is automatic and logged once per kind of layer (`chosen` returns it), and
every requested feature is computed.

    dense    the reference: one mask over all rows, any request
    padded   sequences grouped by length and padded inside the call; any request; the CPU's path
    banded   chunks against the keys around them, where a window is short against the sequences; the CPU's path then
    varlen   flash attention over offsets (CUDA, 16 bit): all, earlier rows, or a window of a document visible
    flex     compiled block-sparse attention with the predicate as mask_mod (CUDA, any visibility, score biases with a
             score_mod, batches that are not small)

A query that sees no key yields zero.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from torch import Tensor

from workbench.core.errors import WorkbenchError, unknown
from workbench.models.attention.banded import banded, banded_lacks, banded_suits
from workbench.models.attention.dense import dense
from workbench.models.attention.flex import flex, flex_lacks, flex_pays, flex_suits
from workbench.models.attention.padded import padded
from workbench.models.attention.request import Request, Result, together
from workbench.models.attention.score_bias import ScoreBias
from workbench.models.attention.varlen import varlen, varlen_lacks, varlen_suits
from workbench.models.compilation import uncompiled
from workbench.models.dropout import numbers_of_heads
from workbench.models.layout import Layout
from workbench.models.tensor_cut import HeadRange

log = logging.getLogger(__name__)

_forced: list[str] = []


def _anything(request: Request) -> bool:
    return True


@dataclass(frozen=True)
class Kernel:
    """A way to compute attention: the machines and sizes it `suits`, and the features of a request it `lacks`, in
    words.

    `pays`: whether it is faster despite its start-up cost; a forced kernel ignores it. `apart`: whether it reads keys
    whose sequences are stored apart (`CacheLayout`) directly.
    """

    name: str
    run: Callable[[Request], Result]
    suits: Callable[[Request], bool]
    lacks: Callable[[Request], str | None]
    apart: bool = False
    pays: Callable[[Request], bool] = _anything


@dataclass(frozen=True)
class Choice:
    """The kernel of a kind of layer, and the features that the faster ones lacked at the first request."""

    label: str
    kernel: str
    device: str
    dtype: str
    passed_over: tuple[str, ...]

    def __str__(self) -> str:
        about = "; ".join([f"{self.device}, {self.dtype}", *self.passed_over])
        return f"attention of {self.label or 'rows'}: {self.kernel} ({about})"


_chosen: dict[tuple[str, ...], Choice] = {}


def chosen() -> tuple[Choice, ...]:
    """The choices of this process so far, in the order of the first requests."""
    return tuple(_chosen.values())


def _nothing(request: Request) -> None:
    return None


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("varlen", varlen, varlen_suits, varlen_lacks),
        Kernel("flex", flex, flex_suits, flex_lacks, pays=flex_pays),
        Kernel("banded", banded, banded_suits, banded_lacks),
        Kernel("padded", padded, _anything, _nothing, apart=True),
        Kernel("dense", dense, _anything, _nothing),
    )
}


@uncompiled
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Layout,
    keys: Layout,
    *,
    dropout: float = 0.0,
    window: int | None = None,
    score_bias: ScoreBias | None = None,
    scale: float | None = None,
    need_weights: bool = False,
    label: str = "",
    heads: HeadRange | None = None,
) -> Result:
    """Scaled dot-product attention inside each sequence -> [rows_q, heads, size], weights of each sequence.

    The weights, asked for with `need_weights`, are those before dropout: of each sequence [heads, its queries, its
    keys], the rows of joined streams stream after stream. See `Request`.
    """
    request = Request(q, k, v, queries, keys, dropout, window, score_bias, scale, need_weights, label, heads)
    kernel = choose(request)
    with numbers_of_heads(q.device, heads) if heads is not None and dropout > 0.0 else nullcontext():
        return kernel.run(request if kernel.apart else together(request))


def choose(request: Request) -> Kernel:
    """The first kernel that suits and lacks nothing, or the forced one.

    Raises:
        WorkbenchError: the forced kernel lacks a requested feature.
    """
    if _forced:
        return _able(KERNELS[_forced[-1]], request)
    passed_over: list[str] = []
    for kernel in KERNELS.values():
        if not (kernel.suits(request) and kernel.pays(request)):
            continue
        lack = kernel.lacks(request)
        if lack is None:
            _note(request, kernel.name, passed_over)
            return kernel
        passed_over.append(f"{kernel.name} cannot do {lack}")
    raise AssertionError("the dense kernel takes any request")


def _able(kernel: Kernel, request: Request) -> Kernel:
    lack = kernel.lacks(request)
    if lack is not None:
        able = ", ".join(other.name for other in KERNELS.values() if other.lacks(request) is None)
        raise WorkbenchError(f"the attention kernel {kernel.name!r} cannot do {lack}; allowed: {able}")
    return kernel


def _note(request: Request, kernel: str, passed_over: list[str]) -> None:
    """Record a choice, and log it the first time."""
    key = request.label, kernel, request.q.device.type, str(request.q.dtype).removeprefix("torch.")
    if key not in _chosen:
        _chosen[key] = Choice(*key, tuple(passed_over))
        log.info("%s", _chosen[key])


@contextmanager
def use_kernel(name: str) -> Iterator[None]:
    """Force a kernel, for tests and measurements."""
    if name not in KERNELS:
        raise unknown("attention kernel", name, KERNELS)
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()

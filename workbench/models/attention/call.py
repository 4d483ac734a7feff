"""The one attention call: rows in, rows out, who sees whom from the layouts.

Each kernel declares what it cannot do; the choice is automatic, logged once, and nothing asked for is left out.

    dense    the reference: one mask over all rows, any request
    padded   sequences grouped by length and padded inside the call; any request; the CPU's path
    banded   chunks against the keys around them, where a window is short against the sequences; the CPU's path then
    varlen   flash attention over offsets (CUDA, 16 bit, everything in a sequence visible)
    flex     compiled block-sparse attention with the predicate as mask_mod (CUDA, any visibility, relations with a
             score_mod)

A query that sees no key yields zero.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.errors import WorkbenchError, unknown
from workbench.models.attention.banded import banded, banded_lacks, banded_suits
from workbench.models.attention.dense import dense
from workbench.models.attention.flex import flex, flex_lacks, flex_suits
from workbench.models.attention.padded import padded
from workbench.models.attention.relation import Relation
from workbench.models.attention.request import Request, Result, together
from workbench.models.attention.varlen import varlen, varlen_lacks, varlen_suits
from workbench.models.layout import Layout

log = logging.getLogger(__name__)

_forced: list[str] = []
_logged: set[str] = set()


@dataclass(frozen=True)
class Kernel:
    """A way to compute attention: the machines and sizes it `suits`, and what of a request it `lacks`, in words.

    `apart`: whether it reads keys whose sequences stand apart (`workbench.models.spread`) as they are.
    """

    name: str
    run: Callable[[Request], Result]
    suits: Callable[[Request], bool]
    lacks: Callable[[Request], str | None]
    apart: bool = False


def _anything(request: Request) -> bool:
    return True


def _nothing(request: Request) -> None:
    return None


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("varlen", varlen, varlen_suits, varlen_lacks),
        Kernel("flex", flex, flex_suits, flex_lacks),
        Kernel("banded", banded, banded_suits, banded_lacks),
        Kernel("padded", padded, _anything, _nothing, apart=True),
        Kernel("dense", dense, _anything, _nothing),
    )
}


@torch.compiler.disable
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Layout,
    keys: Layout,
    *,
    dropout: float = 0.0,
    window: int | None = None,
    relation: Relation | None = None,
    scale: float | None = None,
    need_weights: bool = False,
) -> Result:
    """Scaled dot-product attention inside each sequence -> [rows_q, heads, size], weights of each sequence.

    The weights, asked for with `need_weights`, are those before dropout: of each sequence [heads, its queries, its
    keys], the rows of joined streams stream after stream. See `Request`.
    """
    request = Request(q, k, v, queries, keys, dropout, window, relation, scale, need_weights)
    kernel = choose(request)
    return kernel.run(request if kernel.apart else together(request))


def choose(request: Request) -> Kernel:
    """The first kernel that suits and lacks nothing, or the forced one.

    Raises:
        WorkbenchError: the forced kernel lacks something that is asked for.
    """
    if _forced:
        return _able(KERNELS[_forced[-1]], request)
    passed_over = ""
    for kernel in KERNELS.values():
        if not kernel.suits(request):
            continue
        lack = kernel.lacks(request)
        if lack is None:
            _log(f"{kernel.name} ({request.q.device.type}, {request.q.dtype}{passed_over})")
            return kernel
        passed_over += f"; {kernel.name} cannot do {lack}"
    raise AssertionError("the dense kernel takes any request")


def _able(kernel: Kernel, request: Request) -> Kernel:
    lack = kernel.lacks(request)
    if lack is not None:
        able = ", ".join(other.name for other in KERNELS.values() if other.lacks(request) is None)
        raise WorkbenchError(f"the attention kernel {kernel.name!r} cannot do {lack}; allowed: {able}")
    return kernel


def _log(chosen: str) -> None:
    if chosen not in _logged:
        _logged.add(chosen)
        log.info("attention kernel: %s", chosen)


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

"""The one attention call: rows in, rows out, who sees whom from the layouts.

Each kernel declares what it can do; the choice is automatic, logged once, and nothing asked for is left out.

    dense    the reference: one mask over all rows, any request
    padded   sequences grouped by length and padded inside the call; any request; the CPU's path
    varlen   flash attention over offsets (CUDA, 16 bit, everything in a sequence visible)
    flex     compiled block-sparse attention with the predicate as mask_mod (CUDA, any visibility)

A query that sees no key yields zero.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.errors import unknown
from workbench.models.attention.dense import dense
from workbench.models.attention.flex import can_flex, flex
from workbench.models.attention.padded import padded
from workbench.models.attention.request import Request, Score
from workbench.models.attention.varlen import can_varlen, varlen
from workbench.models.context import Layout

log = logging.getLogger(__name__)

_forced: list[str] = []
_logged: set[str] = set()


@dataclass(frozen=True)
class Kernel:
    """A way to compute attention, and what it can do."""

    name: str
    run: Callable[[Request], tuple[Tensor, Tensor | None]]
    can: Callable[[Request], bool]


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("varlen", varlen, can_varlen),
        Kernel("flex", flex, can_flex),
        Kernel("padded", padded, lambda request: not request.need_weights),
        Kernel("dense", dense, lambda request: True),
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
    score: Score | None = None,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention inside each sequence -> [rows_q, heads, size], weights [heads, rows_q, rows_k].

    The weights (asked for with `need_weights`, before dropout) are over the rows of the whole batch.
    """
    request = Request(q, k, v, queries, keys, dropout, window, score, need_weights)
    return choose(request).run(request)


def choose(request: Request) -> Kernel:
    """The first kernel that can do what is asked, or the forced one."""
    if _forced:
        return KERNELS[_forced[-1]]
    for kernel in KERNELS.values():
        if kernel.can(request):
            if kernel.name not in _logged:
                _logged.add(kernel.name)
                log.info("attention kernel: %s (%s, %s)", kernel.name, request.q.device.type, request.q.dtype)
            return kernel
    raise AssertionError("the dense kernel takes any request")


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

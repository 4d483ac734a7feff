"""`WORKBENCH_COLLECTIVES=check`: every collective is compared over its ranks before it is made.

Ranks that make different collectives, or the same in another order, wait for each other for ever. With the check each
rank first exchanges what it is about to do: the operation, its shape and type, and the unit of parameters that it is
for. A difference ends the run, and the message names the component on each rank. The number and bytes of collectives
are counted, for the log.

It watches the functions of `torch.distributed`, through which DDP's hooks do not pass. It costs an exchange for each
collective.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workbench.components.build_context import named
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import digest
from workbench.core.processes.distributed import World

logger = logging.getLogger(__name__)
VARIABLE = "WORKBENCH_COLLECTIVES"
WATCHED = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather_object",
    "reduce_scatter_tensor",
)
UNEVEN = ("all_to_all_single",)
"""Collectives in which ranks send different numbers of rows."""


def is_checked() -> bool:
    """Whether the environment asks for the check.

    Raises:
        WorkbenchError: the variable has another value than `check`.
    """
    found = os.environ.get(VARIABLE, "")
    if found not in ("", "check"):
        raise WorkbenchError(f"{VARIABLE} = {found!r}; allowed: check, or leave it unset")
    return found == "check"


class CollectiveCheck:
    """Compares collectives, and counts them: `counts[operation]` and `sizes[operation]` in bytes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()
        self._groups: dict[Any, dist.ProcessGroup] = {}
        self._inside = False

    def watch(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, preceded by a comparison."""

        @functools.wraps(function)
        def compared(*arguments: Any, **options: Any) -> Any:
            if self._inside:
                return function(*arguments, **options)
            self._inside = True
            try:
                tensors = [each for each in (*arguments, *options.values()) if isinstance(each, Tensor)]
                self._compare(name, tensors, options.get("group"))
                self.counts[name] += 1
                self.sizes[name] += sum(tensor.nbytes for tensor in tensors[:1])
                return function(*arguments, **options)
            finally:
                self._inside = False

        return compared

    def _compare(self, name: str, tensors: list[Tensor], group: Any) -> None:
        """Exchange the operation over its ranks.

        Raises:
            WorkbenchError: another rank makes another one.
        """
        own = f"{name} of {', '.join(map(_in_words, tensors)) or 'a value'}"
        unit, by = _caller()
        sums = torch.tensor([digest(unit, name if name in UNEVEN or not tensors else own) % 2**62])
        checking = self._group(group)
        ranks = [torch.zeros_like(sums) for _ in range(dist.get_world_size(checking))]
        dist.all_gather(ranks, sums, group=checking)
        if len({int(each) for each in ranks}) == 1:
            return
        found: list[Any] = [None] * len(ranks)
        dist.all_gather_object(found, f"{own}, by {by}", group=checking)
        numbers = dist.get_process_group_ranks(checking)
        lines = "; ".join(f"rank {rank}: {each}" for rank, each in zip(numbers, found, strict=True))
        raise WorkbenchError(
            f"ranks make different collectives: {lines}. All ranks must make the same ones in the same order. Such a "
            "component decides by its data whether a layer or network runs: run it on every rank, or let all ranks "
            "decide together"
        )

    def _group(self, group: Any) -> dist.ProcessGroup:
        """A group for comparisons with the same ranks as another one."""
        ranks = tuple(dist.get_process_group_ranks(group or dist.group.WORLD))
        if ranks not in self._groups:
            made = dist.new_group(list(ranks), backend="gloo", use_local_synchronization=True)
            self._groups[ranks] = made
        return self._groups[ranks]


@contextmanager
def collective_check(world: World) -> Iterator[CollectiveCheck | None]:
    """A block in which collectives are compared, where the environment asks for it; logs their number at its end."""
    if not is_checked() or world.size == 1:
        yield None
        return
    check = CollectiveCheck()
    places: list[tuple[Any, str]] = [*((dist, name) for name in WATCHED), (World, "sum_in_pairs")]
    before = [(place, name, getattr(place, name)) for place, name in places]
    for place, name, function in before:
        setattr(place, name, check.watch(name, function))
    try:
        yield check
    finally:
        for place, name, function in before:
            setattr(place, name, function)
        if world.is_main:
            made = (f"{count} {name} ({check.sizes[name]:,} bytes)" for name, count in sorted(check.counts.items()))
            logger.info("collectives of this rank: %s", ", ".join(made))


def _in_words(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _caller() -> tuple[str, str]:
    """The unit of parameters that a collective is made for; and who makes it, in words: the unit and the outermost
    component that runs meanwhile, or else the function of the product."""
    unit = component = function = ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        own = frame.f_locals.get("self")
        place = getattr(own, "_module_fqn", None)
        if isinstance(place, str) and not unit:
            unit = f"the parameters of {place or 'the root'}"
        if isinstance(own, nn.Module) and named(own) != type(own).__name__:
            component = named(own)
        module = str(frame.f_globals.get("__name__", ""))
        if not function and module.startswith(("workbench.", "kg.", "vision.")) and module != __name__:
            function = f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return unit, " in ".join(filter(None, (unit, component))) or function or "torch"

"""Optimizer steps where a process holds only shards of the parameters.

After FSDP's `fully_shard`, or under tensor parallelism, a parameter is a DTensor: each process holds a shard of it,
maybe an empty one. Plain parameters, such as scalars, are whole and equal on all ranks.

`make_step_local` lets an optimizer see plain tensors alone: during its step every sharded parameter is replaced by the
shard that this process holds. So the kernels of one process serve, and one list may mix all kinds. That is right where
each number moves by its own gradient and state. An update that needs a statistic of a whole tensor is a generator: it
yields what this process has of a sum (`Summand`), and gets the sum over ranks back. The updates of all groups run in
lockstep (`merged`), so that one collective serves all tensors (`exchange`).

An optimizer that is not known to be right under shards is refused: its own class must state `works_on_shards = True`,
or be one of torch's in `ELEMENTWISE`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.models.tensor_cut import is_spread, local

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor, Placement

ROWS = "rows_sharded"
ELEMENTWISE = frozenset(
    {
        torch.optim.Adadelta,
        torch.optim.Adagrad,
        torch.optim.Adam,
        torch.optim.Adamax,
        torch.optim.AdamW,
        torch.optim.ASGD,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.SGD,
    }
)
"""The optimizers of torch that move each number by its own gradient and state. The others need whole tensors
(Adafactor, Muon), whole gradients (LBFGS) or sparse ones (SparseAdam)."""


class Cut(NamedTuple):
    """A dimension of a tensor that is divided, and the processes that hold its shards."""

    dim: int
    group: dist.ProcessGroup


class ShardLayout(NamedTuple):
    """The shape of the whole parameter that a shard belongs to, and its cuts."""

    shape: torch.Size
    cuts: tuple[Cut, ...]

    def groups(self, dim: int | None = None) -> tuple[dist.ProcessGroup, ...]:
        """The groups over which a sum along a dimension (from the last: -1), or over all of them, is added."""
        return tuple(c.group for c in self.cuts if dim is None or c.dim == dim % len(self.shape))


class Summand(NamedTuple):
    """What this process has of a sum over the shards of a tensor; `values` are added over the ranks of each group."""

    values: Tensor
    groups: tuple[dist.ProcessGroup, ...]


T = TypeVar("T")
Stages = Generator[list[Summand], list[Tensor], T]
"""An update in stages: yields summands, and gets the sums over ranks."""


# ---- what this process holds


def is_sharded(parameter: Tensor) -> bool:
    """Whether this process may hold only a shard of the parameter: of a DTensor, or of a table that is a plain
    parameter with the attribute `rows_sharded`, of which each rank has other rows."""
    return is_spread(parameter) or getattr(parameter, ROWS, False)


def cuts_of(parameter: Tensor) -> tuple[Cut, ...]:
    """The divided dimensions of a parameter.

    Raises:
        ValueError: a DTensor that is a sum still to be made.
    """
    if not is_spread(parameter):
        return tuple(Cut(0, group) for group in everyone()) if is_sharded(parameter) else ()
    found = []
    for axis, placement in enumerate(parameter.placements):
        if placement.is_replicate():
            continue
        if not hasattr(placement, "dim"):  # _StridedShard (of two kinds of parallelism) is no Shard
            raise ValueError(f"a parameter with the placement {placement} is no parameter")
        found.append(Cut(placement.dim % parameter.ndim, parameter.device_mesh.get_group(axis)))
    return tuple(found)


def everyone() -> tuple[dist.ProcessGroup, ...]:
    """The group of all processes; none without one."""
    return (dist.group.WORLD,) if dist.group.WORLD is not None else ()


def layout_of(parameter: Tensor) -> ShardLayout | None:
    """The layout of a shard that an optimizer gets; None of a whole parameter."""
    return getattr(parameter, "shard_layout", None)


def whole_size(parameter: Tensor, dim: int | None = None) -> int:
    """The size of the whole parameter of a shard: of a dimension, or of all."""
    layout = layout_of(parameter)
    shape = parameter.shape if layout is None else layout.shape
    return shape.numel() if dim is None else shape[dim]


def groups_of(parameter: Tensor, dim: int | None = None) -> tuple[dist.ProcessGroup, ...]:
    """As `ShardLayout.groups`; none of a whole parameter."""
    layout = layout_of(parameter)
    return () if layout is None else layout.groups(dim)


@torch.no_grad()
def local_parameters(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """The shards of parameters that this process holds, with their gradients; whole ones are themselves.

    The shards share memory with the parameters and gradients.
    """
    return [_local(p) if is_spread(p) else p for p in parameters]  # type: ignore[arg-type]


def local_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of parameters that have one, or the shards of these that this process holds, as plain tensors."""
    with torch.no_grad():
        shards = (_local(p) if is_spread(p) else p for p in parameters)  # type: ignore[arg-type]
        return [p.grad for p in shards if p.grad is not None]


def _local(parameter: nn.Parameter) -> nn.Parameter:
    found = nn.Parameter(local(parameter), parameter.requires_grad)
    gradient = parameter.grad
    if is_spread(gradient) and is_spread(parameter) and gradient.placements != parameter.placements:
        parameter.grad = gradient.redistribute(placements=parameter.placements)  # a sum that was still to be made
    found.grad = None if parameter.grad is None else local(parameter.grad)
    return found


# ---- sums over ranks


def merged(stages: Iterable[Stages[None]]) -> Stages[None]:
    """Updates in lockstep: what all of them yield at a stage is exchanged at once.

    An update that yields nothing is complete before the next one begins.
    """
    waiting = []
    for stage in stages:
        parts = next(stage, None)
        if parts is not None:
            waiting.append((stage, parts))
    while waiting:
        sums = iter((yield [part for _, parts in waiting for part in parts]))
        answered = [(stage, [next(sums) for _ in parts]) for stage, parts in waiting]
        waiting = []
        for stage, answers in answered:
            try:
                waiting.append((stage, stage.send(answers)))
            except StopIteration:
                continue


def exchange(stages: Stages[None]) -> None:
    """Run an update; each stage takes a collective for each group of processes, and none without shards."""
    parts = next(stages, None)
    while parts is not None:
        try:
            parts = stages.send(summed(parts))
        except StopIteration:
            return


def summed(parts: list[Summand]) -> list[Tensor]:
    """The sums over ranks: added in at least float32, a collective for each group; no wait for the device."""
    values = [part.values.to(torch.promote_types(part.values.dtype, torch.float32)) for part in parts]
    joined: dict[tuple[Any, ...], tuple[dist.ProcessGroup, list[int]]] = {}
    for i, part in enumerate(parts):
        for group in part.groups:
            key = (*dist.get_process_group_ranks(group), values[i].device, values[i].dtype)
            joined.setdefault(key, (group, []))[1].append(i)
    for group, places in joined.values():
        flat = torch.cat([values[i].reshape(-1) for i in places])
        dist.all_reduce(flat, group=group)
        for i, piece in zip(places, flat.split([values[i].numel() for i in places]), strict=True):
            values[i] = piece.view_as(values[i])
    return [value.to(part.values.dtype) for value, part in zip(values, parts, strict=True)]


def whole_norms(norms: list[Tensor], parameters: list[Tensor]) -> Stages[list[Tensor]]:
    """The norms of whole tensors from those of their shards; `norms` themselves without shards."""
    if not any(groups_of(p) for p in parameters):
        return norms
    squares = torch._foreach_mul(norms, norms)
    sums = yield [Summand(square, groups_of(p)) for square, p in zip(squares, parameters, strict=True)]
    return list(torch._foreach_sqrt(sums))


def whole_means(tensors: list[Tensor], parameters: list[Tensor]) -> Stages[list[Tensor]]:
    """The mean of each tensor, of which this process may hold a shard, as of the parameter."""
    sharded = [bool(groups_of(p)) for p in parameters]
    if not any(sharded):
        return [tensor.mean() for tensor in tensors]
    parts = [Summand(tensor.sum(), groups_of(p)) for tensor, p in zip(tensors, parameters, strict=True)]
    return [total / whole_size(p) for total, p in zip((yield parts), parameters, strict=True)]


# ---- the step


def check_works_on_shards(kind: type, name: str) -> None:
    """Check that an optimizer is known to be right where parameters are shards.

    The statement of a base class does not count: a subclass may compute something else.

    Raises:
        WorkbenchError: it is not known.
    """
    if kind in ELEMENTWISE or vars(kind).get("works_on_shards", False):
        return
    known = ", ".join(sorted(f"torch.optim:{each.__name__}" for each in ELEMENTWISE))
    raise WorkbenchError(
        f"train.optimizer: {name!r} is not known to be right where parameters are sharded; allowed: adafactor, adamw, "
        f"lamb, stable_adamw, {known}, and own classes with `works_on_shards = True`. Take one of these, or train "
        "without shards (train.parallel.shard=none)"
    )


def make_step_local(optimizer: torch.optim.Optimizer, name: str) -> None:
    """If parameters are sharded, let the optimizer's step see the shards that this process holds, as plain tensors.

    The state of a shard, in `optimizer.state` between two steps, is a DTensor like its parameter.

    Args:
        name: the optimizer's name in the recipe.

    Raises:
        WorkbenchError: the optimizer is not known to be right under shards.
    """
    sharded: list[Any] = [p for group in optimizer.param_groups for p in group["params"] if is_spread(p)]
    if not sharded:
        return
    check_works_on_shards(type(optimizer), name)
    layouts = {p: ShardLayout(p.shape, cuts_of(p)) for p in sharded}
    whole: Callable[[], Any] = optimizer.step

    @wraps(whole)
    def step() -> Any:
        with _local_step(optimizer, layouts):
            return whole()

    optimizer.step = step  # type: ignore[method-assign,assignment]


@contextmanager
def _local_step(optimizer: torch.optim.Optimizer, layouts: Mapping[nn.Parameter, ShardLayout]) -> Iterator[None]:
    """The optimizer with the shards that this process holds, in its groups and in its state."""
    wholes = [group["params"] for group in optimizer.param_groups]
    state = optimizer.state
    with torch.no_grad():
        parts = {p: _local(p) for p in layouts}
        for p, part in parts.items():
            part.shard_layout = layouts[p]  # type: ignore[attr-defined]
        held: dict[Any, Any] = {}
        for key, kept in state.items():
            held[parts.get(key, key)] = {name: local(value) for name, value in kept.items()}  # type: ignore[call-overload]
    optimizer.state = defaultdict(dict, held)
    for group in optimizer.param_groups:
        group["params"] = [parts.get(p, p) for p in group["params"]]
    try:
        yield
    finally:
        moved, optimizer.state = optimizer.state, state
        for group, whole in zip(optimizer.param_groups, wholes, strict=True):
            group["params"] = whole
            for p in whole:
                if (part := parts.get(p, p)) in moved:
                    state[p] = _as_before(state.get(p, {}), moved[part], optimizer, p)


# ---- state


def placements_of(optimizer: torch.optim.Optimizer, key: str, parameter: DTensor) -> list[Placement]:
    """How the state `key` of a sharded parameter is placed: as the parameter, but whole along the dimension of which it
    holds means (the optimizer's attribute `means_over`, by key)."""
    from torch.distributed.tensor import Replicate

    dim = getattr(optimizer, "means_over", {}).get(key)
    gone = None if dim is None else dim % parameter.ndim
    placements = parameter.placements
    return [Replicate() if hasattr(p, "dim") and p.dim % parameter.ndim == gone else p for p in placements]


def place_state(optimizer: torch.optim.Optimizer, key: str, parameter: nn.Parameter, value: Tensor) -> Tensor:
    """A whole tensor of the state `key`, or one that is placed otherwise, as the optimizer keeps it between two steps.

    Every rank has the same whole tensor, and none sends it.
    """
    if not is_spread(parameter) or value.ndim != parameter.ndim:
        return value
    from torch.distributed.tensor import DTensor, Replicate

    placements = placements_of(optimizer, key, parameter)
    if not is_spread(value):
        mesh = parameter.device_mesh
        value = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return value.redistribute(placements=placements).to(parameter.device)


def _as_before(
    before: dict[str, Any], now: dict[str, Any], optimizer: torch.optim.Optimizer, parameter: nn.Parameter
) -> dict[str, Any]:
    """The state of a parameter after a step: a DTensor where it is state of a shard."""
    if not is_spread(parameter):
        return now
    kept = {}
    for key, value in now.items():
        old = before.get(key)
        same = is_spread(old) and local(old.detach()) is value
        kept[key] = old if same else _distributed(value, key, optimizer, parameter)
    return kept


def _distributed(value: Any, key: str, optimizer: torch.optim.Optimizer, parameter: DTensor) -> Any:
    """State of a shard as a DTensor. Numbers stay as they are.

    Raises:
        WorkbenchError: it has another shape than the shard.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    if not isinstance(value, Tensor) or not value.ndim:
        return value
    here, shape = local(parameter.detach()).shape, parameter.shape
    dim = getattr(optimizer, "means_over", {}).get(key)
    if dim is not None:
        here, shape = (_without(each, dim) for each in (here, shape))
    if value.shape != here:
        raise WorkbenchError(
            f"the optimizer {type(optimizer).__name__} keeps {key} of shape {tuple(value.shape)} for a shard of shape "
            f"{tuple(here)}; allowed: numbers, tensors of the shard's shape, and means along the dimension that its "
            "attribute `means_over` names"
        )
    meta = TensorMeta(shape, torch.empty(shape, device="meta").stride(), value.dtype)
    spec = DTensorSpec(parameter.device_mesh, tuple(placements_of(optimizer, key, parameter)), tensor_meta=meta)
    return DTensor(value, spec, requires_grad=False)  # from_local would move what is offloaded to the mesh's device


def _without(shape: torch.Size, dim: int) -> torch.Size:
    sizes = list(shape)
    sizes[dim] = 1
    return torch.Size(sizes)

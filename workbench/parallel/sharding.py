"""A model whose parameters are sharded over ranks (FSDP2, Zhao et al. 2023, arXiv:2304.11277).

The units are the distinct layers of all networks. A layer's parameters are gathered when it runs and freed after it.
Everything else belongs to the root's unit, which stays whole during a pass: embeddings, poolers and heads, and
parameters that several layers share. So heads may read tables, and a network may be used outside its forward.

Ranks that make different collectives wait for each other for ever. A rank may have no labels for a head, or none that
reach a layer. So every unit takes part in every backward: the parameters of a unit that ran get a zero
gradient (`_Touch`), and so does the output of every unit (`_Joined`). `Shards.used` says which parameters really
had a gradient; those that no rank used get None, as with DDP.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from workbench.components.error_context import ErrorContext
from workbench.models.tensor_cut import local
from workbench.parallel.lean_building import Filling

Place = tuple[nn.Module, str]
"""A module and the name of a parameter of it."""

JOINED = "\0joined"


class Unit:
    """Parameters that are gathered and freed together: those that are trained, at their places."""

    def __init__(self, parameters: Iterable[nn.Parameter], within: Iterable[nn.Module]) -> None:
        wanted = {id(p) for p in parameters if p.requires_grad}
        self.places: list[Place] = []
        for module in within:
            for name, parameter in module._parameters.items():
                if parameter is not None and id(parameter) in wanted:
                    wanted.remove(id(parameter))
                    self.places.append((module, name))

    def parameters(self) -> list[nn.Parameter]:
        """The parameters as they are now: shards, or whole while the unit is gathered."""
        return [getattr(module, name) for module, name in self.places]


def units_of(
    root: nn.Module, layers: Iterable[nn.Module], replicated: Collection[nn.Parameter] = ()
) -> tuple[dict[nn.Module, list[nn.Parameter]], list[nn.Parameter]]:
    """The parameters of each layer's unit, and those of the root's; `replicated` ones are in neither."""
    apart = set(replicated)
    distinct = list(dict.fromkeys(layers))
    outside = _without(root, set(distinct))
    homes: dict[nn.Parameter, set[nn.Module]] = {}
    for layer in distinct:
        for parameter in layer.parameters():
            homes.setdefault(parameter, set()).add(layer)
    of_root = {p for module in outside for p in module._parameters.values() if p is not None}
    of_root |= {p for p, several in homes.items() if len(several) > 1}
    own = {layer: [p for p in layer.parameters() if p not in of_root | apart] for layer in distinct}
    return {layer: found for layer, found in own.items() if found}, [
        p for p in root.parameters() if p in of_root and p not in apart
    ]


def _without(root: nn.Module, layers: set[nn.Module]) -> list[nn.Module]:
    """The modules that can be reached from the root without passing through a layer."""
    found: dict[nn.Module, None] = {}
    left = [root]
    while left:
        module = left.pop()
        if module not in found and module not in layers:
            found[module] = None
            left += module.children()
    return list(found)


def _make_contiguous(parameters: Iterable[nn.Parameter]) -> None:
    """FSDP divides contiguous parameters only."""
    for parameter in parameters:
        if not parameter.is_contiguous():
            parameter.data = parameter.data.contiguous()


class Shards:
    """Shards a model in place over a mesh; its parameters are DTensors afterwards, under the same names.

    Args:
        root: its forward returns a dict.
        layers: of its networks, in any order.
        mesh: one dimension (shard), or two (replicate, shard) for hybrid sharding (HSDP).
        replicated: parameters that every rank keeps whole: those without a dimension, and what is read outside the
            root's forward. Their gradients are the caller's affair.
        param_dtype: in which parameters are gathered; gradients are reduced in float32. None: the parameters' own.
        offload: where the shards live.
        filling: sets the values of a unit before it is sharded.
    """

    def __init__(
        self,
        root: nn.Module,
        layers: Iterable[nn.Module],
        mesh: DeviceMesh,
        *,
        replicated: Collection[nn.Parameter] = (),
        param_dtype: torch.dtype | None = None,
        offload: OffloadPolicy | None = None,
        filling: Filling | None = None,
    ) -> None:
        self.root = root
        own, of_root = units_of(root, layers, replicated)
        mixed = MixedPrecisionPolicy(param_dtype, torch.float32, cast_forward_inputs=False)
        options: dict[str, Any] = {"mesh": mesh, "mp_policy": mixed, "offload_policy": offload or OffloadPolicy()}
        self.units: dict[nn.Module, Unit] = {}
        self._outputs: list[Tensor] | None = None
        self._sharded: dict[int, nn.Parameter] = {}
        for layer in list(own):
            parameters = own.pop(layer)  # no list may hold whole parameters longer than their unit needs
            if filling is not None:
                with ErrorContext(layer):
                    filling.fill((*parameters, *layer.buffers()))
            _make_contiguous(parameters)
            self.units[layer] = Unit(parameters, layer.modules())
            layer.register_forward_hook(self._touched)  # before FSDP's own, which must see what it returns
            with ErrorContext(layer):
                fully_shard(layer, ignored_params=set(layer.parameters()) - set(parameters), **options)
            del parameters
        if filling is not None:
            filling.fill((*root.parameters(), *root.buffers()))
        _make_contiguous(of_root)
        self.units[root] = Unit(of_root, root.modules())
        root.register_forward_hook(self._joined)
        # FSDP does not look into layers that are sharded already: what they share is shown to it here
        holder = nn.ParameterList(of_root)
        root.add_module("_shared", holder)
        fully_shard(root, ignored_params=set(root.parameters()) - set(of_root), **options)
        del root._modules["_shared"], holder, of_root
        root.register_forward_hook(self._freed)
        self._shards = {unit: unit.parameters() for unit in self.units.values()}

    @contextmanager
    def training(self) -> Iterator[None]:
        """A block with one forward of the root; `joined` takes what it adds to the outputs."""
        self._outputs = []
        try:
            yield
        finally:
            self._outputs = None

    @staticmethod
    def joined(outputs: dict[str, Any]) -> Tensor:
        """The scalar 0 of a training forward, taken out of its outputs; its backward reaches every unit."""
        scalar: Tensor = outputs.pop(JOINED)
        return scalar

    def used(self, scalar: Tensor) -> set[nn.Parameter]:
        """The trained parameters that a scalar depends on. Call it before its backward."""
        found: set[nn.Parameter] = set()
        seen: set[Any] = set()
        left = [scalar.grad_fn]
        while left:
            node = left.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None:
                found.add(self._sharded.get(id(variable), variable))
                continue
            made_by = getattr(type(node), "_forward_cls", None)
            following = [following for following, _ in node.next_functions]
            left += [] if made_by is _Joined else following[:1] if made_by is _Touch else following
        return found

    def last_backward(self, last: bool) -> None:
        """Say whether the next backward is the last one of a step: only that one reduces over replicas."""
        for module in self.units:
            assert isinstance(module, FSDPModule)
            module.set_requires_all_reduce(last, recurse=False)
        assert isinstance(self.root, FSDPModule)
        self.root.set_is_last_backward(last)

    @torch._dynamo.disable
    def _touched(self, layer: nn.Module, _: Any, output: Any) -> Any:
        """Route one output of a layer through `_Touch`, in a training forward."""
        if self._outputs is None or not torch.is_grad_enabled() or not isinstance(output, dict):
            return output
        name = next((n for n, t in output.items() if isinstance(t, Tensor) and t.requires_grad), None)
        if name is None:
            return output
        touched = _Touch.apply(output[name], *self._whole(layer))
        self._outputs.append(touched)
        return {**output, name: touched}

    def _joined(self, root: nn.Module, _: Any, outputs: dict[str, Any]) -> dict[str, Any]:
        if self._outputs is not None and torch.is_grad_enabled():
            outputs[JOINED] = _Joined.apply(*self._outputs, *self._whole(root))
        return outputs

    def _freed(self, root: nn.Module, _: Any, outputs: Any) -> None:
        """Free the root's parameters after a forward without a backward, so that they are shards everywhere."""
        if not torch.is_grad_enabled() and isinstance(root, FSDPModule):
            root.reshard()

    def _whole(self, module: nn.Module) -> list[nn.Parameter]:
        """The gathered parameters of a unit; records which shards they belong to."""
        unit = self.units[module]
        whole = unit.parameters()
        self._sharded |= {id(p): shard for p, shard in zip(whole, self._shards[unit], strict=True)}
        return whole


class _Touch(torch.autograd.Function):
    """The identity; in its backward the parameters get zero gradients, so that all ranks reduce the same ones."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *parameters: nn.Parameter) -> Tensor:
        ctx.zeros = [_zeros_like(p) for p in parameters]
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return gradient, *(zeros() for zeros in ctx.zeros)


class _Joined(torch.autograd.Function):
    """The scalar 0; in its backward every input gets a zero gradient."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        ctx.zeros = [_zeros_like(t) for t in inputs]
        return torch.zeros((), device=inputs[0].device)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, ...]:
        return tuple(zeros() for zeros in ctx.zeros)


def _zeros_like(tensor: Tensor) -> Callable[[], Tensor]:
    """Makes zeros like a tensor, which is not kept until then. They take the memory of one number."""
    shape, dtype, device = local(tensor).shape, tensor.dtype, tensor.device
    spread = None
    if isinstance(tensor, DTensor):
        spread = partial(
            DTensor.from_local,
            device_mesh=tensor.device_mesh,
            placements=tensor.placements,
            run_check=False,
            shape=tensor.shape,
            stride=tensor.stride(),
        )

    def zeros() -> Tensor:
        found = torch.zeros((), dtype=dtype, device=device).expand(shape)
        return found if spread is None else spread(found)

    return zeros

"""Tensor parallelism of attention and feed-forward networks (Shoeybi et al., arXiv:1909.08053, section 3).

The ranks of a tensor group read the same micro-batch. Each computes some heads of every attention and some features of
every feed-forward network; the outputs are summed over the group. All else is computed on each rank, equally: norms,
residual connections, embeddings, poolers, objectives. `shard_tensors` cuts the parameters of a model that was built as
usual, and FSDP's `fully_shard` may follow on the data dimensions of the same mesh.

Which tensors are cut is stated by the modules themselves (`workbench.models.tensor_cut`). A layer that is built from
the shared blocks needs no statement. A module that cannot be cut is refused before anything changes. So is one whose
heads or features the ranks do not divide.

A cut parameter is a DTensor with the placement `Shard(dim)` and the name and shape of the whole one. Its order is that
of the ranks: the parts of rank 0, then those of rank 1. Where a matrix has several blocks (queries, keys and values;
gate and value), a rank has a part of each, so this order is not the matrix's own. Checkpoints store it in its own
order (`workbench.parallel.tensor_order`), and any number of ranks reads them.
`cut_parameters` lists the cut parameters by name. All other parameters stay plain tensors, equal on all ranks of the
group.

Dropout between the cut layers, which is that of attention weights, draws the numbers of its own heads: on a CPU those
of one rank, on other devices numbers that no other rank draws. All other dropout is drawn equally on all ranks, if
their generators are seeded equally.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from workbench.core.errors import WorkbenchError
from workbench.models.adapter import Adapter
from workbench.models.tensor_cut import Blocks, CutDim, CutModule, TensorCuts, local

RECIPE_KEY = "train.parallel.tensor"
PART = "_tensor_part"
"""The attribute of a cut module with its `ModulePart`."""


@dataclass
class CutForward:
    """A forward of a module, between the entry of its rows and its end.

    There alone, a cut parameter is read as a plain tensor, this rank's part. Elsewhere it is the DTensor, as FSDP and
    optimizers need it. So a layer that computes with the weights of a block past the block's entry gets an error of
    torch (tensors and DTensors are mixed), and never wrong gradients in silence.
    """

    opened: bool = False


@dataclass
class ModulePart:
    """What a rank has of a module.

    Attributes:
        kind: owner, columns, entering columns, rows, features, or tensors alone.
        cuts: of its own parameters and buffers.
        summed: its own whole parameters whose gradients are summed.
        forwards: those in which its parameters are read as parts.
        forward: that of the module's own forward.
    """

    kind: type | None = None
    blocks: Blocks = 1
    cuts: dict[str, CutDim] = field(default_factory=dict)
    summed: set[str] = field(default_factory=set)
    forwards: list[CutForward] = field(default_factory=list)
    forward: CutForward | None = None
    group: Any = None
    rank: int = 0
    ranks: int = 1


class _Entered(torch.autograd.Function):
    """The identity; the gradient is summed over the group."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _sum(gradients[0], ctx.group), None


class _Summed(torch.autograd.Function):
    """The sum over the group; the gradient passes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Any) -> Tensor:
        return _sum(rows, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Gathered(torch.autograd.Function):
    """Values of some heads [heads, ...] -> those of all heads; the gradient is that of its own heads."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, part: ModulePart) -> Tensor:
        ctx.part = part
        parts = [torch.empty_like(values, memory_format=torch.contiguous_format) for _ in range(part.ranks)]
        dist.all_gather(parts, values.contiguous(), group=part.group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].chunk(ctx.part.ranks)[ctx.part.rank], None


def _sum(values: Tensor, group: Any) -> Tensor:
    total = values.clone(memory_format=torch.contiguous_format)
    if total.numel():
        dist.all_reduce(total, group=group)
    return total


class _Owner:
    """A module whose forward has cut layers."""

    def forward(self, *given: Any, **named: Any) -> Any:
        forward = _part(self).forward
        assert forward is not None
        try:
            return super().forward(*given, **named)  # type: ignore[misc]
        finally:
            forward.opened = False

    def entered(self, rows: Tensor) -> Tensor:
        part = _part(self)
        assert part.forward is not None
        part.forward.opened = True
        return _Entered.apply(rows, part.group)

    def of_all_ranks(self, values: Tensor) -> Tensor:
        return _Gathered.apply(values, _part(self))


class _Columns:
    """A linear layer of which this rank has some outputs."""


class _EnteringColumns:
    """The same, of rows that are whole."""

    def forward(self, rows: Tensor) -> Any:
        return super().forward(_Entered.apply(rows, _part(self).group))  # type: ignore[misc]


class _Rows:
    """A linear layer of which this rank has some inputs."""

    weight: Tensor
    bias: Tensor | None

    def forward(self, features: Tensor) -> Tensor:
        total = _Summed.apply(F.linear(features, self.weight), _part(self).group)
        return total if self.bias is None else total + self.bias.to(total.dtype)


class _Features:
    """Dropout of the features that this rank has: the mask of all is drawn, so that the result is that of one rank."""

    p: float
    training: bool

    def forward(self, features: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return features
        part = _part(self)
        factor = F.dropout(features.new_ones(*features.shape[:-1], features.shape[-1] * part.ranks), self.p)
        return features * CutDim(features.dim() - 1, part.blocks).part(factor, part.rank, part.ranks)


def _part(module: Any) -> ModulePart:
    part: ModulePart = module.__dict__[PART]
    return part


def _read(name: str, module: nn.Module) -> Tensor | None:
    """A parameter: inside its forwards this rank's part as a plain tensor, elsewhere itself."""
    part, held = _part(module), module._parameters[name]
    if held is None or not any(forward.opened for forward in part.forwards):
        return held
    own = local(held)
    return _Entered.apply(own, part.group) if name in part.summed else own


@cache
def _derived(kind: type, names: tuple[str, ...], base: type) -> type:
    """The class of a cut module: parameters are read as parts, and keep their places in `_parameters`."""
    body = {name: property(partial(_read, name)) for name in names}
    about = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (kind, base) if kind is not object else (base,), {**about, **body})


class TensorPlan:
    """The parts of the modules of a model for a number of ranks; nothing is changed before `apply`.

    Raises:
        WorkbenchError: a module cannot be cut, or its heads or features cannot be divided evenly.
    """

    def __init__(self, root: nn.Module, ranks: int) -> None:
        self.root, self.ranks = root, ranks
        self.parts: dict[nn.Module, ModulePart] = {}
        self.cut: list[Any] = []
        names = {module: name for name, module in root.named_modules()}
        stated = {module: module.tensor_cuts() for module in names if isinstance(module, CutModule)}
        owned = {module.get_submodule(path) for module, cuts in stated.items() for path in cuts.owns}  # type: ignore[attr-defined]
        self.names = names
        self._check_divided({m: cuts for m, cuts in stated.items() if m not in owned})
        for module, cuts in stated.items():
            if module not in owned:
                self._own(module, cuts)
        self._check_shared()

    def _check_divided(self, stated: dict[Any, TensorCuts]) -> None:
        numbers = {(m, what): number for m, cuts in stated.items() for what, number in cuts.divided.items()}
        for (module, what), number in numbers.items():
            if number % self.ranks:
                common = math.gcd(*numbers.values())
                allowed = ", ".join(str(n) for n in range(1, common + 1) if common % n == 0)
                raise WorkbenchError(
                    f"{RECIPE_KEY} = {self.ranks} does not divide {what} = {number} of {self._named(module)}; allowed "
                    f"for this model: {allowed}"
                )

    def _named(self, module: nn.Module) -> str:
        return f"{self.names.get(module) or 'the model'} ({type(module).__name__})"

    def _of(
        self, module: nn.Module, kind: type | None = None, blocks: Blocks = 1, forward: CutForward | None = None
    ) -> ModulePart:
        """The part of a module, made once."""
        part = self.parts.setdefault(module, ModulePart(ranks=self.ranks))
        if kind is not None:
            if part.kind is not None and (part.kind, part.blocks) != (kind, blocks):
                raise WorkbenchError(
                    f"{self._named(module)} is shared by modules that cut it in different ways; set {RECIPE_KEY}: 1"
                )
            part.kind, part.blocks = kind, blocks
        part.forwards += [] if forward is None else [forward]
        return part

    def _own(self, module: Any, cuts: TensorCuts) -> None:
        """Add the parts of a module that has cut layers, of what it contains and of the adapters of its layers."""
        self.cut.append(module)
        if cuts.complete:
            self._check_complete(module, cuts)
        if not cuts.columns and not cuts.rows:
            return  # a score bias, whose parts are read in the forward of its attention
        forward = CutForward()
        self._of(module, _Owner).forward = forward
        self._add(module, cuts, forward)
        inner: list[Any] = list(module.modules())[1:] if cuts.complete else []
        for child in inner:
            if isinstance(child, CutModule):
                self._add(cast(nn.Module, child), child.tensor_cuts(), forward)
        for path, blocks in cuts.columns.items():
            self._adapters(module.get_submodule(path), "columns", blocks, forward)
        for path, blocks in cuts.rows.items():
            self._adapters(module.get_submodule(path), "rows", blocks, forward)
        if "num_heads" in cuts.divided and hasattr(module, "seen"):
            self._adapters(module.seen, "heads", 1, forward)

    def _add(self, module: nn.Module, cuts: TensorCuts, forward: CutForward) -> None:
        """Add the parts of the layers and tensors of a module, which are read in a forward."""
        for path, blocks in cuts.columns.items():
            kind = _EnteringColumns if path in cuts.entering else _Columns
            part = self._linear(module.get_submodule(path), kind, blocks, forward)
            part.cuts |= {name: CutDim(0, blocks) for name in ("weight", "bias")}
        for path, blocks in cuts.rows.items():
            part = self._linear(module.get_submodule(path), _Rows, blocks, forward)
            part.cuts["weight"] = CutDim(1, blocks)
        for path, cut in cuts.tensors.items():
            place, _, name = path.rpartition(".")
            holder = module.get_submodule(place)
            if name in holder._buffers and name not in holder._non_persistent_buffers_set:
                raise WorkbenchError(
                    f"the buffer {path} of {self._named(module)} is cut, and stored in checkpoints; register it with "
                    "persistent=False"
                )
            self._of(holder, forward=forward).cuts[name] = cut
        for path in cuts.summed:
            place, _, name = path.rpartition(".")
            self._of(module.get_submodule(place), forward=forward).summed.add(name)
        for path, blocks in cuts.features.items():
            self._of(module.get_submodule(path), _Features, blocks)

    def _linear(self, linear: nn.Module, kind: type, blocks: Blocks, forward: CutForward) -> ModulePart:
        if not isinstance(linear, nn.Linear):
            raise WorkbenchError(f"{self._named(linear)} is no nn.Linear, and is not cut; set {RECIPE_KEY}: 1")
        return self._of(linear, kind, blocks, forward)

    def _adapters(self, module: nn.Module, place: Any, blocks: Blocks, forward: CutForward) -> None:
        """Add the parts of the adapters of a cut module, which are its hooks."""
        for hook in module._forward_hooks.values():
            adapter = getattr(hook, "__self__", None)
            if isinstance(adapter, Adapter):
                self._add(adapter, adapter.cuts_at(place, blocks), forward)

    def _check_complete(self, module: nn.Module, cuts: TensorCuts) -> None:
        """Refuse a module that has parameters without a statement, as of a class derived from a block."""
        known = {*cuts.tensors, *cuts.summed}
        known |= {f"{path}.{name}" for path in (*cuts.columns, *cuts.rows) for name in ("weight", "bias")}
        inner = [name for name, child in module.named_modules() if name and isinstance(child, CutModule)]
        for name, _ in module.named_parameters():
            if name not in known and not any(name.startswith(f"{path}.") for path in inner):
                raise WorkbenchError(
                    f"{self._named(module)} has the parameter {name}, and its tensor_cuts does not state how ranks "
                    f"share it; state it there, or set {RECIPE_KEY}: 1"
                )

    def _check_shared(self) -> None:
        """Refuse a parameter that is cut in one module and has another cut, or none, in another."""
        found: dict[Tensor, tuple[str, CutDim | None]] = {}
        for module, path in self.names.items():
            cuts = self.parts[module].cuts if module in self.parts else {}
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    place, cut = found.setdefault(parameter, (f"{path}.{name}", cuts.get(name)))
                    if cut != cuts.get(name):
                        raise WorkbenchError(
                            f"{place} and {path}.{name} are one parameter, which tensor parallelism cuts in one place "
                            f"alone or in two ways; remove the tie, or set {RECIPE_KEY}: 1"
                        )

    def apply(self, mesh: DeviceMesh) -> None:
        """Cut the parameters and change the classes of the modules."""
        made: dict[Tensor, nn.Parameter] = {}
        for module, part in self.parts.items():
            part.group, part.rank = mesh.get_group(), mesh.get_local_rank()
            for name, cut in part.cuts.items():
                if (parameter := module._parameters.get(name)) is not None:
                    if parameter not in made:
                        made[parameter] = _distributed(parameter, cut, mesh)
                    module._parameters[name] = made[parameter]
                elif (buffer := module._buffers.get(name)) is not None:
                    module._buffers[name] = cut.part(buffer, part.rank, part.ranks)
            module.__dict__[PART] = part
            names = tuple(n for n in (*part.cuts, *part.summed) if module._parameters.get(n) is not None)
            module.__class__ = _derived(part.kind or object, names, type(module))  # type: ignore[arg-type]
        for stating in self.cut:
            stating.take_part(mesh.get_local_rank(), self.ranks)


def _distributed(parameter: nn.Parameter, cut: CutDim, mesh: DeviceMesh) -> nn.Parameter:
    """This rank's part of a parameter, as a DTensor of the whole."""
    from torch.distributed.tensor import DTensor, Shard

    with torch.no_grad():
        part = cut.part(parameter, mesh.get_local_rank(), mesh.size())
    spread = DTensor.from_local(part, mesh, [Shard(cut.dim)], run_check=False)
    made = nn.Parameter(spread, requires_grad=parameter.requires_grad)
    made.__dict__.update(parameter.__dict__)
    return made


def check_tensors(root: nn.Module, ranks: int) -> None:
    """Check that a model can be cut over this number of ranks.

    Raises:
        WorkbenchError: it cannot be; says which module is the reason, and what is allowed.
    """
    TensorPlan(root, ranks)


def planned_cuts(root: nn.Module, ranks: int) -> dict[Tensor, CutDim]:
    """The cuts of the parameters and buffers of a model that is not cut yet.

    Raises:
        WorkbenchError: as `check_tensors`.
    """
    found: dict[Tensor, CutDim] = {}
    for module, part in TensorPlan(root, ranks).parts.items():
        for name, cut in part.cuts.items():
            held = module._parameters.get(name), module._buffers.get(name)
            found |= {tensor: cut for tensor in held if tensor is not None}
    return found


def shard_tensors(root: nn.Module, mesh: DeviceMesh) -> dict[str, CutDim]:
    """Cut the attentions and feed-forward networks of a model, adapters included, over the ranks of a mesh.

    Every rank of the mesh calls it, with equal weights, before `fully_shard` and before the optimizer is made.

    Args:
        root: a network, or a model with several and their heads.
        mesh: of one dimension: the last one of the run's mesh.

    Returns:
        The cuts of the parameters by name (`cut_parameters`).

    Raises:
        WorkbenchError: a module cannot be cut; nothing was changed then.
    """
    if mesh.ndim != 1:
        raise ValueError(f"a mesh of one dimension is needed; found {mesh.ndim}")
    TensorPlan(root, mesh.size()).apply(mesh)
    return cut_parameters(root)


def cut_parameters(root: nn.Module) -> dict[str, CutDim]:
    """The cuts of the parameters that `shard_tensors` cut, by their names; a shared one is found under all of them."""
    found: dict[str, CutDim] = {}
    for path, module in root.named_modules(remove_duplicate=False):
        part = module.__dict__.get(PART)
        for name, cut in {} if part is None else part.cuts.items():
            if module._parameters.get(name) is not None:
                found[f"{path}.{name}" if path else name] = cut
    return found

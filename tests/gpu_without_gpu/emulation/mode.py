"""A CUDA device whose values the CPU computes.

Every operator on CUDA tensors runs twice: on CUDA's side, where torch checks devices and dtypes, allocates, and
launches kernels that compute nothing; and on CPU tensors over the same memory. Operators whose result has a shape that
depends on values run on the CPU alone, and count the wait that CUDA makes for it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from tests.gpu_without_gpu.emulation import attention, flex, kernels
from tests.gpu_without_gpu.emulation.counting import launch, wait
from tests.gpu_without_gpu.emulation.draws import drawing, generator_of
from tests.gpu_without_gpu.emulation.memory import device_of, fill, on_cpu, on_device

aten = torch.ops.aten
BY_VALUE = {
    aten.nonzero.default: 1,
    aten.masked_select.default: 1,
    aten.masked_scatter_backward.default: 1,
    aten._unique2.default: 1,
    aten.unique_dim.default: 1,
    aten.unique_consecutive.default: 1,
    aten.equal.default: 1,
    aten.bincount.default: 1,
}
"""Operators that wait for values, and how often."""
INDEXED = {
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
}
REPEATS = {aten.repeat_interleave.Tensor, aten.repeat_interleave.self_Tensor}
COLLECTIVES = ("c10d", "_c10d_functional")
PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default}
LARGE = 10**11
"""Operations of a product that is no model's: the measurement of what the card can do. Its values are not computed."""
LIBRARIES = ("cudnn", "cusolver", "magma", "cusparse", "cufft")


class Emulate(TorchDispatchMode):
    """See the file. It sees what the autograd thread runs too, since modes go with a backward."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.attention = dict(attention.emulated())
        self.own = dict(kernels.emulated()) | self.attention

    def __enter__(self) -> Emulate:
        self.cudnn = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = False  # its recurrent layers lay out weights by calls into the real library
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.backends.cudnn.enabled = self.cudnn
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = _device(args, kwargs)
        if device is None:
            return func(*args, **kwargs)
        if isinstance(func, torch._ops.HigherOrderOperator):
            raise NotImplementedError(f"{func.name()} is not emulated: see tests/gpu_without_gpu/emulation/")
        random = torch.Tag.nondeterministic_seeded in func.tags or "attention" in func.name()
        if not random:
            return self._run(func, args, kwargs)
        source = generator_of(device, kwargs.get("generator"))
        if func in self.attention and not attention.drops(func, args, kwargs):
            offset = source.get_offset()
            try:
                return self._run(func, args, kwargs)
            finally:
                source.set_offset(offset)  # without a card torch moves it all the same
        with drawing(source):
            return self._run(func, args, kwargs)

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func.namespace in COLLECTIVES:  # NCCL's own exchange is real; on CPU tensors gloo would do it again
            return func(*args, **kwargs)
        if func in self.own:
            return self.own[func](func, args, kwargs)
        if _composed(func):  # in inference mode these come whole
            with self:
                return func.decompose(*args, **kwargs)
        if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
            return func(*args, **kwargs)  # a view: nothing is computed
        waits = _waits(func, args, kwargs)
        if waits:
            wait(func.name(), waits)
            return _on_cpu_alone(func, args, kwargs)
        try:
            out = func(*args, **kwargs)
        except RuntimeError as error:
            if not any(library in str(error).lower() for library in LIBRARIES):
                raise
            wait(f"{func.name()} (a library)")  # they look at what they found before they return
            launch()
            return _on_cpu_alone(func, args, kwargs)
        if func in PRODUCTS and out.numel() * args[-1].shape[-2] > LARGE:
            return out
        values = _computed(func, args, kwargs)
        if not func._schema.is_mutable:
            fill(out, values)
        return out


def _device(args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """The CUDA device that an operator is about, if it is about one."""
    asked = kwargs.get("device")
    if asked is not None and torch.device(asked).type == "cuda":
        return torch.device(asked)
    for value in tree_flatten((args, kwargs))[0]:
        if isinstance(value, Tensor) and value.device.type == "cuda":
            return value.device
    return None


@cache
def _composed(func: Any) -> bool:
    """Whether an operator is built from others on CUDA, and has no kernel of its own."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), "CUDA")


def _waits(func: Any, args: Any, kwargs: dict[str, Any]) -> int:
    if func in INDEXED:
        masks = (torch.bool, torch.uint8)
        found = [x for x in args[1] if isinstance(x, Tensor) and x.dtype in masks and x.device.type == "cuda"]
        return len(found)
    if func in REPEATS:
        return int(kwargs.get("output_size") is None)
    return BY_VALUE.get(func, 0)


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What the CPU makes of the same arguments, in place where the operator is."""
    args, kwargs = tree_map(lambda x: None if isinstance(x, torch.Generator) else x, (args, kwargs))
    try:
        return func(*on_cpu(args), **on_cpu(kwargs))
    except (NotImplementedError, RuntimeError) as error:
        shapes = [(x.dtype, tuple(x.shape)) for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        raise NotImplementedError(
            f"the emulation computes {func} {shapes} by the CPU's kernel, which says: {error}. Give it a rule in "
            "tests/gpu_without_gpu/emulation/kernels.py"
        ) from error


def _on_cpu_alone(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    device = device_of((args, kwargs))
    values = _computed(func, args, kwargs)
    return args[0] if func._schema.is_mutable else on_device(values, device)


def install() -> Emulate:
    """The emulation, once for a process; before the product is imported (`flex.install`)."""
    flex.install()
    return Emulate()

"""Building a model that is larger than the memory of one process.

The initial values of a model come from one stream of random numbers, so one process draws them: the main rank, into
files that the system pages in and out (`mapped_tensors`). All others build the model without memory (`skeleton`), and
receive one unit after the other while it is sharded (`Filling`).
"""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from workbench.components.build_context import component_around, named

M = TypeVar("M", bound=nn.Module)
logger = logging.getLogger(__name__)

_OF_MODULES = {"_parameters", "_buffers", "_modules"}
LARGE = 2**20
"""Bytes from which a tensor is worth a file."""


@contextmanager
def mapped_tensors() -> Iterator[None]:
    """A block in which large new tensors of the CPU live in files without a name, in the folder for temporary files."""
    with _Mapped():
        yield


class _Mapped(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in (torch.empty, torch.zeros) or kwargs.get("device") is not None:
            return func(*args, **kwargs)
        with torch.device("meta"):
            like = func(*args, **kwargs)
        size = like.numel() * like.element_size()
        if size < LARGE or torch.get_default_device().type != "cpu":
            return func(*args, **kwargs)
        number, path = tempfile.mkstemp(prefix="workbench-")
        try:
            storage = torch.UntypedStorage.from_file(path, True, size)
        finally:
            os.close(number)
            os.unlink(path)
        return torch.empty(0, dtype=like.dtype).set_(storage).view(like.shape)  # type: ignore[arg-type]


@contextmanager
def shapes_alone() -> Iterator[None]:
    """A block in which new tensors have shapes but no memory, on torch's meta device."""
    with torch.device("meta"), _WithoutValues():
        yield


class _WithoutValues(TorchFunctionMode):
    """Draws no normal numbers for tensors without memory: torch would import its compiler for it (1.3 s)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, nn.init.normal_):
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def skeleton(make: Callable[[], M]) -> M:
    """A model whose tensors have shapes but no memory; the whole model where a component needs real numbers."""
    try:
        with shapes_alone():
            model = make()
    except Exception as error:  # an error of the recipe is raised when it is built whole
        logger.debug("the model cannot be built without memory: %s", error)
        return make()
    if found := _empty_attribute(model):
        logger.warning(
            "%s is a tensor, and neither a parameter nor a buffer, so every rank builds the whole model in its memory. "
            "Use register_buffer(..., persistent=False)",
            found,
        )
        return make()
    return model


def _empty_attribute(model: nn.Module) -> str:
    """An attribute of a module that holds a tensor without memory; "" if there is none."""
    for module in model.modules():
        for name, value in vars(module).items():
            if name not in _OF_MODULES and any(isinstance(t, Tensor) and t.is_meta for t in tree_leaves(value)):
                return f"{named(component_around(model, module))}: {type(module).__name__}.{name}"
    return ""


class Filling:
    """Sets tensors without memory to the values that they have on the main rank.

    Args:
        root: the model, the same on all ranks but for memory.
        device: where values are received.
    """

    def __init__(self, root: nn.Module, device: torch.device) -> None:
        self.device = device
        tensors = [*root.named_parameters(), *root.named_buffers()]
        flags = torch.tensor([[t.is_meta, weakref.getweakrefcount(t) > 0] for _, t in tensors], dtype=torch.float64)
        if len(tensors):
            dist.all_reduce(flags)
        found = [(t, missing, watched) for (_, t), (missing, watched) in zip(tensors, flags.tolist(), strict=True)]
        self.missing = {id(t): t for t, missing, watched in found if missing and not watched}
        for tensor in [t for t, missing, watched in found if missing and watched]:
            _replace(root, tensor, self._received(tensor))  # an LSTM watches its weights: they cannot change in place

    @torch.no_grad()
    def fill(self, tensors: Iterable[Tensor]) -> None:
        """Fill those of these tensors that are missing on some rank, in place; every rank takes part."""
        for tensor in tensors:
            if self.missing.pop(id(tensor), None) is not None:
                whole = self._received(tensor)
                if tensor.is_meta:
                    torch.utils.swap_tensors(tensor, whole)
                del whole

    def _received(self, tensor: Tensor) -> Tensor:
        """The main rank's values of a tensor."""
        held = torch.empty_like(tensor, device=self.device) if tensor.is_meta else tensor.detach().to(self.device)
        held = held.contiguous()
        dist.broadcast(held, 0)
        return nn.Parameter(held, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else held.detach()


def _replace(root: nn.Module, tensor: Tensor, by: Tensor) -> None:
    """Put another tensor in the places of one without memory."""
    if not tensor.is_meta:
        return
    for module in root.modules():
        for name, own in [*module._parameters.items(), *module._buffers.items()]:
            if own is tensor:
                setattr(module, name, by)

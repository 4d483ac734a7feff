"""The source of numbers that are not finite, and passes that leave no trace.

`checked_terms`  watches the score biases in the pass before the first step that counts operations
`watched`        watches all modules of a pass, once a loss turned out not to be finite; no other step pays for it
`dry`            restores the state that a forward changes
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from workbench.components.build_context import build_record_of, named
from workbench.core.errors import WorkbenchError
from workbench.models.attention.score_bias import ScoreBias


@contextmanager
def checked_terms(root: nn.Module) -> Iterator[None]:
    """A block in which every score bias must leave each query some key: a row of -inf alone trains without an error.

    Raises (where it occurs, and at the end of the block):
        WorkbenchError: a bias has a score that is NaN or +inf, or a row without any finite score.
    """
    found: list[WorkbenchError] = []

    def check(relation: nn.Module, _: Any, term: Any) -> None:
        try:
            _check_term(relation, term)
        except WorkbenchError as error:
            found.append(error)
            raise

    with ExitStack() as stack:
        for module in root.modules():
            if isinstance(module, ScoreBias):
                stack.callback(module.register_forward_hook(check).remove)
        yield
    if found:  # a caller may catch errors of the forward, but not this one
        raise found[0]


def _check_term(relation: nn.Module, term: Any) -> None:
    if not isinstance(term, Tensor) or term.ndim != 4:
        return  # `TERM` reports it
    bad = term.isnan() | term.isposinf()
    found = f"{term[bad][0].item()}" if bad.any() else ""
    if not found and not term.isfinite().any(-1).all():
        found = "-inf for every key of a query"
    if found:
        raise WorkbenchError(
            f"{named(relation)} returned {found}; allowed: finite scores, or -inf for some of the keys of a query"
        )


@contextmanager
def watched(root: nn.Module) -> Iterator[list[str]]:
    """A block in which modules run eagerly. It yields the names of those whose outputs were NaN or infinite, in the
    order in which they ended: the first is the innermost source."""
    found: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        for path, module in root.named_modules():
            name = _name(root, path)

            def look(module: nn.Module, given: Any, output: Any, name: str = name) -> None:
                if not all(map(_is_finite, tensors_in(output))):
                    found.append(name)

            stack.callback(module.register_forward_hook(look).remove)
        yield found


def _is_finite(tensor: Tensor) -> bool:
    """Whether a tensor is finite; -inf may hide a score, in a bias or among logits."""
    return not (tensor.isnan() | tensor.isposinf()).any()


def _name(root: nn.Module, path: str) -> str:
    """A module's path, and the component of the recipe that it is or belongs to."""
    steps = path.split(".")
    for length in range(len(steps), 0, -1):
        part = root.get_submodule(".".join(steps[:length]))
        if build_record_of(part) is not None:
            return f"{path} ({named(part)})"
    return path


def tensors_in(output: Any) -> Iterator[Tensor]:
    """The floating-point tensors in what a module returned."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for inner in output.values():
            yield from tensors_in(inner)
    elif isinstance(output, list | tuple):
        for inner in output:
            yield from tensors_in(inner)
    elif dataclasses.is_dataclass(output):
        for field in dataclasses.fields(output):
            yield from tensors_in(getattr(output, field.name))


@contextmanager
def dry(root: nn.Module) -> Iterator[None]:
    """A block that restores all state at its end: a module's buffers (batch statistics, queues, counters) and modes,
    and torch's generators.

    A buffer that was replaced by another tensor is restored too. The block takes the memory of the buffers once more.
    """
    modules = list(root.modules())
    buffers = [(module, dict(module._buffers)) for module in modules]
    modes = [module.training for module in modules]
    values: dict[Tensor, Tensor] = {}
    for _, own in buffers:
        values |= {buffer: buffer.detach().clone() for buffer in own.values() if buffer is not None}
    devices = {tensor.device for tensor in (*root.parameters(), *values) if tensor.device.type == "cuda"}
    with torch.random.fork_rng([device.index for device in devices]):
        try:
            yield
        finally:
            _restore(buffers, values)
            for module, training in zip(modules, modes, strict=True):
                module.training = training


@torch.no_grad()
def _restore(buffers: list[tuple[nn.Module, dict[str, Tensor | None]]], values: dict[Tensor, Tensor]) -> None:
    for module, own in buffers:
        module._buffers.clear()
        module._buffers.update(own)
    for buffer, value in values.items():
        buffer.copy_(value)

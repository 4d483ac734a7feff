"""Fresh weights of networks and heads."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from workbench.components.build_context import component_around, named
from workbench.core.errors import WorkbenchError


def check_parameters(root: nn.Module) -> None:
    """Check that every optimizer and every way of parallel training can train the parameters of a network or a head.

    Raises:
        WorkbenchError: a parameter has no size yet or is complex, or has sparse gradients.
    """
    for module in root.modules():
        for name, parameter in module._parameters.items():
            wrong = ""
            if parameter is None:
                continue
            if is_lazy(parameter):
                wrong = "has no size before the first forward pass; state its size, as of nn.Linear"
            elif parameter.is_complex():
                wrong = "is complex; store the real and the imaginary part (torch.view_as_real)"
            elif getattr(module, "sparse", False) is True and isinstance(module, nn.Embedding | nn.EmbeddingBag):
                wrong = "has sparse gradients; set sparse=False. A table of entities may set rows: sharded instead"
            if wrong:
                kind = type(module).__name__
                raise WorkbenchError(f"{named(component_around(root, module))}: parameter {name!r} of {kind} {wrong}")


def initialise(module: nn.Module, scale: float) -> None:
    """BERT's initialisation: matrices and tables from N(0, scale^2), biases 0, norms 1 and 0.

    A component that brings its own values (a pretrained backbone, an entity table) sets `keeps_values = True`. One with
    other initial values (an adapter that is 0 at first) has a method `initialise(scale)`, which fills it and all its
    modules. A frozen matrix or table keeps its values too, as it would not be trained.
    """
    if getattr(module, "keeps_values", False):
        return
    own = getattr(module, "initialise", None)
    if callable(own):
        own(scale)
        return
    if isinstance(module, nn.Linear | nn.Embedding | nn.Conv2d) and module.weight.requires_grad:
        nn.init.normal_(module.weight, std=scale)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)  # type: ignore[arg-type]
    for child in module.children():
        initialise(child, scale)


@torch.no_grad()
def scale_residuals(layers: Iterable[nn.Module]) -> None:
    """Scale the output of each residual branch by 1 / sqrt(N), so that the sum of N branches does not grow with the
    depth (GPT-2, section 2.3; Megatron-LM, arXiv:1909.08053, section 4).

    N counts the branches of all layers that change the same streams: two of each `self` layer. A branch is a module
    with a property `added`: the weights of the maps whose outputs are added. One that several layers share is scaled
    once.
    """
    branches: dict[tuple[str, ...], list[tuple[Tensor, ...]]] = {}
    for layer in layers:
        found = branches.setdefault(tuple(getattr(layer, "changes", ())), [])
        found += [
            weights for module in layer.modules() for weights in [getattr(module, "added", None)] if weights is not None
        ]
    scaled: set[int] = set()
    for each in branches.values():
        for weight in (weight for weights in each for weight in weights):
            if id(weight) not in scaled:
                weight.mul_(len(each) ** -0.5)
                scaled.add(id(weight))

"""Giving the linear maps of a network adapters, and merging these into its weights."""

from __future__ import annotations

import fnmatch
from typing import Any

from torch import nn

from workbench.errors import WorkbenchError, nearest
from workbench.models.adapter import Adapter, Place
from workbench.models.network import Network, initialise
from workbench.options.values import check
from workbench.parts.building import build
from workbench.recipe.spec import Spec

DOT = ":"  # in the names of adapters, which are those of their maps, as a module's name has no dot in it


def adapt(network: Network, specs: list[Spec], init_range: float, where: str) -> None:
    """From now on train adapters, and nothing else of the network but its poolers, with which heads begin.

    They lie in `network.adapters`, for each spec those of its maps; the names of all other weights stay.

    Raises:
        WorkbenchError: an unknown adapter or option, or a pattern that matches no linear map of the network.
    """
    network.requires_grad_(False)
    network.poolers.requires_grad_(True)
    maps = {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear)}
    for i, spec in enumerate(specs):
        place = f"{where}[{i}]"
        options = dict(spec)
        targets = check(Place, {"targets": options.pop("targets")} if "targets" in options else {}, place).targets
        chosen = {name for pattern in targets for name in _matching(pattern, list(maps), f"{place}.targets")}
        made: dict[str, nn.Module] = {}
        for name in sorted(chosen):
            sizes: dict[str, Any] = {"in_size": maps[name].in_features, "out_size": maps[name].out_features}
            adapter: Adapter = build("adapter", options, place, **sizes)
            initialise(adapter, init_range)
            maps[name].register_forward_hook(adapter.act)
            made[name.replace(".", DOT)] = adapter
        network.adapters.append(nn.ModuleDict(made))


def _matching(pattern: str, names: list[str], where: str) -> list[str]:
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        close = nearest(pattern, names) or names[:3]
        raise WorkbenchError(f"{where}: {pattern!r} matches no linear map of the network. Some: {', '.join(close)}")
    return found


def merge(network: Network) -> None:
    """Put what the adapters do into the weights of the network, and take them away.

    Raises:
        WorkbenchError: one does what no weights can.
    """
    for adapters in network.adapters:
        assert isinstance(adapters, nn.ModuleDict)
        for name, adapter in adapters.items():
            linear = network.get_submodule(name.replace(DOT, "."))
            assert isinstance(adapter, Adapter)
            assert isinstance(linear, nn.Linear)
            adapter.merge(linear)
            hooks = linear._forward_hooks
            for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is adapter]:
                del hooks[key]
    network.adapters = nn.ModuleList()

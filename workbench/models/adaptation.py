"""Adding adapters to modules of a network, and merging them into its weights."""

from __future__ import annotations

import fnmatch

from torch import nn

from workbench.components.building import build, named_by
from workbench.core.errors import WorkbenchError, nearest
from workbench.core.options.values import check
from workbench.models.adapter import Adapter, AdapterPlace, Targets, WeightAdapter
from workbench.models.initialisation import initialise
from workbench.models.network import Network
from workbench.recipe.spec import Spec

DOT = ":"  # replaces dots in the names of adapters (those of their modules), as module names have no dot


def adapt(network: Network, specs: list[Spec], init_range: float, where: str, whole: bool = False) -> None:
    """Add adapters to a network. Only they and the poolers, with which heads begin, are trained from now on.

    They are in `network.adapters`, for each spec those of its modules; the names of all other weights stay.

    Args:
        whole: train the adapted network too.

    Raises:
        WorkbenchError: an unknown adapter or option, a pattern that matches no module that it adapts, or an adapter
            that erases the effect of one before it.
    """
    network.trained_whole = whole
    if not whole:
        network.requires_grad_(False)
        network.poolers.requires_grad_(True)
    modules = dict(network.named_modules())
    for i, spec in enumerate(specs):
        place = f"{where}[{i}]"
        options = dict(spec)
        adapts: AdapterPlace = named_by("adapter", options, place)[0].adapts
        stated = {"targets": list(adapts.targets)} if adapts.targets else {}
        stated |= {"targets": options.pop("targets")} if "targets" in options else {}
        targets = check(Targets, stated, place).targets
        known = [name for name, module in modules.items() if isinstance(module, adapts.kind)]
        chosen = {name for pattern in targets for name in _matching(pattern, known, adapts.words, f"{place}.targets")}
        made: dict[str, nn.Module] = {}
        for name in sorted(chosen):
            adapter: Adapter = build("adapter", options, place, **adapts.sizes(modules[name]))
            _check_first(adapter, name, network, place)
            initialise(adapter, init_range)
            modules[name].register_forward_hook(adapter.act)
            made[name.replace(".", DOT)] = adapter
        network.adapters.append(nn.ModuleDict(made))


def _check_first(adapter: Adapter, name: str, network: Network, where: str) -> None:
    """
    Raises:
        WorkbenchError: another adapter changes the module before this one, which computes its output anew.
    """
    earlier = [i for i, made in enumerate(network.adapters) if name.replace(".", DOT) in made]  # type: ignore[operator]
    if earlier and isinstance(adapter, WeightAdapter) and not adapter.follows:
        raise WorkbenchError(
            f"{where}: this adapter computes the output of {name} from the weights alone, and erases what the adapter "
            f"{earlier[0]} of the same module adds; put it before that one, or choose other targets"
        )


def _matching(pattern: str, names: list[str], words: str, where: str) -> list[str]:
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        close = nearest(pattern, names) or names[:3]
        raise WorkbenchError(f"{where}: {pattern!r} matches no {words} of the network. Some: {', '.join(close)}")
    return found


def merge(network: Network) -> list[str]:
    """Merge the adapters of a network into its weights, and remove them. Returns in words what is lost.

    Raises:
        WorkbenchError: an adapter has no form as weights.
    """
    lost: list[str] = []
    for adapters in network.adapters:
        assert isinstance(adapters, nn.ModuleDict)
        for name, adapter in adapters.items():
            module = network.get_submodule(name.replace(DOT, "."))
            assert isinstance(adapter, Adapter)
            lost += filter(None, [adapter.merge(module)])
            hooks = module._forward_hooks
            for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is adapter]:
                del hooks[key]
    network.adapters = nn.ModuleList()
    return list(dict.fromkeys(lost))

"""Networks of other runs in a recipe (`model: {teacher: {run: PLACE}}`): looked up once, and then as any other.

The recipe of the new run states what was found: the architecture, `init_from` with the place, and `frozen`. So the run
records the identity of the weights as for every `init_from`, and it resumes where the place is gone.
"""

from __future__ import annotations

from dataclasses import replace

from workbench.core.errors import WorkbenchError, unknown
from workbench.interop.run_or_checkpoint import recipe_at
from workbench.pretraining.task import DEFAULT_NETWORK
from workbench.recipe.other_networks import StoredNetwork
from workbench.recipe.spec import Follower, InitFrom, NetworkSpec, Recipe
from workbench.runs.folder import trust_run
from workbench.runs.names import is_run
from workbench.runs.stored_run import fetched_run


def with_stored_networks(recipe: Recipe, *, trust: bool = False) -> Recipe:
    """The recipe with the architecture and the source of each stored network.

    Args:
        trust: whether components of a run's own code may be run.

    Raises:
        WorkbenchError: there is neither a run nor a checkpoint, a run has no such network, or several and none is
            named, or code of its own that is not trusted.
    """
    if not recipe.stored or not isinstance(recipe.model, dict):
        return recipe
    model: dict[str, NetworkSpec | Follower | StoredNetwork] = {
        name: _found(spec, f"model.{name}", trust) if isinstance(spec, StoredNetwork) else spec
        for name, spec in recipe.model.items()
    }
    return replace(recipe, model=model)


def _found(stored: StoredNetwork, where: str, trust: bool) -> NetworkSpec:
    place = fetched_run(stored.run)
    base = recipe_at(place)
    networks = base.all_networks
    name = stored.network or (next(iter(networks)) if len(networks) == 1 else DEFAULT_NETWORK)
    if name not in networks:
        advice = "" if stored.network else f"Name one, as {where}.network"
        raise unknown("network", name, networks, f"{where}: {stored.run}", advice=advice)
    if is_run(place):
        trust_run(place, base, trust)
    spec = networks[name]
    other = {*networks} - {*spec.streams}
    if borrowed := [path for path in spec.tie.values() if path.partition(".")[0] in other]:
        raise WorkbenchError(
            f"{where}: the network {name!r} of {stored.run} shares {borrowed[0]} with another one. Fine-tune it by "
            "itself first: that run has it whole"
        )
    start = InitFrom(stored.run, network=name if is_run(place) else None, heads=stored.heads or None)
    return replace(spec, init_from=[start], frozen=True)

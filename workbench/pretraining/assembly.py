"""Builds the tasks of a recipe: their half in the loader, and the model on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from workbench.components.build_context import build_record_of, building, entered, mark, named, record
from workbench.components.calls import call
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.keyed import digest
from workbench.models.initialisation import check_parameters, initialise
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.pretraining.checks import check_fit
from workbench.pretraining.forward import ViewKey
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import GLOBAL_BATCH_HEAD, HEAD, Head
from workbench.pretraining.task import Task, TaskObjective, build_tasks
from workbench.recipe.spec import Recipe
from workbench.text.tokenizer import Tokenizer


def tasks_of(recipe: Recipe, tokenizer: Tokenizer | None) -> dict[str, Task]:
    """The tasks by name, without their heads."""
    return build_tasks(recipe.tasks, seed=recipe.seed, resources=_resources(recipe, tokenizer))


def make_model(recipe: Recipe, tasks: dict[str, Task], tokenizer: Tokenizer | None) -> PretrainingModel:
    """The model: networks and heads with fresh weights that depend on the recipe's seed alone.

    Objectives of one name in several tasks share a head.

    Raises:
        WorkbenchError: such objectives differ in class, options, network or view; an objective names a network that
            the recipe does not have, or does not fit its own; sequences do not fit the networks.
    """
    objectives = _objectives(tasks)
    torch.manual_seed(digest(recipe.seed, "weights") % 2**63)
    networks = build_networks(recipe, **_resources(recipe, tokenizer))
    heads = {name: _head(placed, recipe, networks) for name, placed in objectives.items()}
    places = {name: ViewKey(placed.network, placed.view) for name, placed in objectives.items()}
    fixed = [name for name, placed in objectives.items() if placed.weight == 0 and networks[placed.network].frozen]
    root = PretrainingModel(networks, heads, places, recipe.followers, fixed)
    check_fit(tasks.values(), root)
    return root


def _objectives(tasks: dict[str, Task]) -> dict[str, TaskObjective]:
    """The objectives by name. Those of one name in several tasks share the head of the first one."""
    found: dict[str, TaskObjective] = {}
    for task in tasks.values():
        for placed in task.objectives:
            known = found.setdefault(placed.name, placed)
            if not _may_share(known, placed):
                raise WorkbenchError(
                    f"tasks.{task.name}: another task has an objective {placed.name!r} too, {known.stated}, and this "
                    f"one is {placed.stated}. Objectives of one name share a head. Give this one another `name`. If "
                    "they differ only in options for reading samples, give both the same `name` to share it"
                )
    return found


def _may_share(one: TaskObjective, other: TaskObjective) -> bool:
    """Whether two objectives are alike, or are of one class and place and both have one name in the recipe."""
    alike = type(one.objective) is type(other.objective) and (one.network, one.view) == (other.network, other.view)
    return alike and (one.stated == other.stated or ("name" in one.stated and "name" in other.stated))


def _head(placed: TaskObjective, recipe: Recipe, networks: dict[str, Network]) -> Head:
    objective = placed.objective
    if placed.network not in networks:
        raise unknown("network", placed.network, networks, f"objective {placed.name!r}")
    with entered(building().collecting()) as context:
        returned = GLOBAL_BATCH_HEAD if objective.global_batch else HEAD
        head: Head = call(objective, "head_among", returned, networks[placed.network], networks)
    if (own := build_record_of(objective)) is not None:  # the objective itself depends on the control
        record(objective, replace(own, opened=own.opened | context.built("").opened))
    mark(head, f"{named(objective)}, its head")
    spec = recipe.networks.get(placed.network) or recipe.networks[recipe.followers[placed.network].follows]
    check_parameters(head)
    initialise(head, spec.init_range)
    return head


def _resources(recipe: Recipe, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The resources that components may request by the names of their arguments."""
    resources: dict[str, Any] = {"seed": recipe.seed, "control": recipe.control}
    if tokenizer is not None:
        resources |= {"tokenizer": tokenizer, "vocab_size": tokenizer.vocab_size}
    return resources

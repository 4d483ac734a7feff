"""What a network learns, as its recipe says it: by which objectives, how it reads texts, and of whose features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.recipe.spec import Recipe, Spec
from workbench.tasks.corpora_facts import features_of
from workbench.tasks.task import objectives_of, visibilities_of


@dataclass(frozen=True)
class Taught:
    """Of one network.

    Attributes:
        objectives: what the recipe says of them, by name.
        visibilities: which rows of a text each one sees.
        features: what made the features that it reads.
    """

    objectives: Mapping[str, Spec] = field(default_factory=dict)
    visibilities: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()


def taught(recipe: Recipe, network: str) -> Taught:
    return Taught(objectives_of(recipe, network), visibilities_of(recipe, network), features_of(recipe, network))

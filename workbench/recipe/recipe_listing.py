"""Descriptions of the shipped recipes for `workbench recipes` and docs/systems/.

Every description is derived from the recipe: its header, networks and tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from workbench.recipe.reading import load_recipe, shipped
from workbench.recipe.spec import NetworkSpec, Recipe
from workbench.recipe.trees import as_tree

FIRST, LAST = ("text", "knowledge", "vision_language"), ("tiny", "demo")
"""Families in the order in which they are shown, others between them. The families of LAST are not systems of papers.
"""

PREPARED = "corpora/"
"""The folder in which recipes expect the output of `workbench prepare`; `vars.data` names another folder."""


def families() -> dict[str, list[Recipe]]:
    """The recipes by family, which is their folder."""
    found: dict[str, list[Recipe]] = {}
    for name, path in shipped().items():
        found.setdefault(path.parent.name, []).append(load_recipe(name))
    return {family: found[family] for family in in_order(found)}


def in_order(names: Iterable[str]) -> list[str]:
    """Families in the order in which they are shown."""
    others = sorted({*names} - {*FIRST, *LAST})
    return [name for name in (*FIRST, *others, *LAST) if name in {*names}]


def stack(recipe: Recipe) -> str:
    """The stack of a recipe on one line: transforms of its sequences, then its networks' layers over their streams."""
    transforms = dict.fromkeys(
        str(transform["transform"]) for task in recipe.tasks.values() for transform in task.sequence.transforms
    )
    described = {name: _layers(spec.layers, spec) for name, spec in recipe.networks.items()}
    if len(described) == 1:
        networks = list(described.values())
    else:
        networks = [f"{name}: {layers}" for name, layers in described.items()]
    follow = [f"{name} follows {spec.follows}" for name, spec in recipe.followers.items()]
    return "; ".join([*transforms, *networks, *follow, *visibility_notes(recipe)])


def visibility_notes(recipe: Recipe) -> list[str]:
    """Notes on visibilities that are not bidirectional. They concern the text, which is said if there are other
    streams."""
    visibilities = {name for task in recipe.tasks.values() for name in task.sequence.visibilities} - {"bidirectional"}
    alone = all(len(network.streams) == 1 for network in recipe.networks.values())
    return [f"{visibility} visibility{'' if alone else ' of the text'}" for visibility in sorted(visibilities)]


def _layers(specs: Iterable[Mapping[str, Any]], network: NetworkSpec) -> str:
    """The layers on a line: `12 x self(text), 5 x [co(text, image), self(text), self(image)]`. Equal neighbours are
    joined."""
    layers = [(_layer(spec, network), int(spec.get("repeat", 1))) for spec in specs]
    runs = ((name, sum(times for _, times in same)) for name, same in groupby(layers, key=lambda each: each[0]))
    return ", ".join(name if times == 1 else f"{times} x {name}" for name, times in runs)


def _layer(spec: Mapping[str, Any], network: NetworkSpec) -> str:
    """A layer with the streams that its options name, or a group of layers."""
    shared = f" (share: {spec['share']})" if spec.get("share") else ""
    if "group" in spec:
        return f"[{_layers(spec['group'], network)}]{shared}"
    values = [value if isinstance(value, list) else [value] for value in spec.values()]
    named = [name for value in values for name in value if isinstance(name, str)]  # others are components
    streams = dict.fromkeys(name for name in named if name in network.streams)
    return f"{spec['layer']}({', '.join(streams)}){shared}" if streams else f"{spec['layer']}{shared}"


def expected(recipe: Recipe) -> list[str]:
    """The corpora and files that a recipe names in the folder of prepared data."""
    return sorted({place for place in _words(as_tree(recipe)) if place.startswith(PREPARED)})


def _words(tree: Any) -> Iterator[str]:
    """The strings of a tree, including the keys of mappings (the places of corpora)."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        yield from (word for pair in tree.items() for value in pair for word in _words(value))
    elif isinstance(tree, list | tuple):
        yield from (word for value in tree for word in _words(value))

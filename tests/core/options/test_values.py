"""Every shipped option declares its allowed values; and the check of values itself."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Le, Len, Lt, MinLen

from pipelines.readers.formats import formats
from pipelines.stages import entity_links, media_checks, region_features, text_cleaning
from tests.recipes.shipped_recipes import recipe as shipped_recipe
from tests.robustness.bad_values import all_commands, bad_values
from workbench.components import building as parts
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, LearningRate, LocalPlace, Means, Share, Word
from workbench.core.options.command import options_of
from workbench.core.options.values import check, described
from workbench.models.network import LayerGroup, Repetition
from workbench.pretraining.task import Placement
from workbench.recipe.reading import recipe_names
from workbench.recipe.spec import NetworkSpec, Paper, Recipe, Reported, SequenceSpec, TaskSpec
from workbench.recipe.train_spec import TrainSpec

SPECS = (Recipe, Paper, Reported, NetworkSpec, SequenceSpec, TaskSpec, TrainSpec, Repetition, LayerGroup, Placement)
STAGES = (media_checks, entity_links, region_features, text_cleaning)
GIVEN = (
    "sizes",
    "num_layers",
    "in_size",
    "out_size",
    "tokenizer",
    "params",
)  # what the caller has, and no recipe states


def _named(tree: Any) -> Iterator[tuple[str, str]]:
    """(kind, name) of every component in a recipe; its options follow, one of which may name a stream `image`."""
    if isinstance(tree, Mapping):
        yield from [(kind, name) for kind, name in tree.items() if kind in KINDS and isinstance(name, str)][:1]
        for inner in tree.values():
            yield from _named(inner)
    elif isinstance(tree, list):
        for inner in tree:
            yield from _named(inner)


def shipped_components() -> list[tuple[str, str]]:
    """Those with short names, and whatever a recipe names, without torch's."""
    found = {(kind, name) for kind in KINDS for name in parts.short_names(kind)}
    for recipe in recipe_names():
        found |= set(_named(dataclasses.asdict(shipped_recipe(recipe))))
    return sorted((kind, name) for kind, name in found if not name.startswith("torch."))


def declared(components: list[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """What can be stated, by who declares it: option -> annotation."""
    hints = {f"{kind} {name}": parts.options_of(parts.find(kind, name)).types for kind, name in components}
    hints |= {f"command {name}": {o.name: o.annotation for o in options_of(f)} for name, f in all_commands()}
    hints |= {spec.__name__: typing.get_type_hints(spec, include_extras=True) for spec in SPECS}
    for kind in ("text", "image-text", "triples"):
        hints |= {f"format {name}": parts.options_of(reader).types for name, reader in formats(kind).items()}
    for module in STAGES:
        for name, value in vars(module).items():
            if dataclasses.is_dataclass(value) and value.__module__ == module.__name__:
                hints[f"stage {name}"] = parts.options_of(value).types
    return hints


def open_ends(hint: Any) -> Iterator[str]:
    """What an annotation leaves open: numbers without bounds, text without a meaning."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kind, metadata = arguments[0], arguments[1:]
        if any(isinstance(m, Means) for m in metadata):
            return
        if kind in (int, float):
            lower = any(isinstance(m, Ge | Gt) for m in metadata)
            if not (lower and any(isinstance(m, Le | Lt) for m in metadata)):
                yield f"a number needs bounds on both sides: {hint}"
        else:
            yield from open_ends(kind)
    elif hint in (int, float, str):
        yield f"{hint.__name__} says nothing; use a type of options.bounds, a Literal, or bounds next to the type"
    elif origin in (typing.Union, types.UnionType) or (origin is not Literal and arguments):
        for inner in arguments:
            yield from open_ends(inner)


@pytest.fixture(scope="module")
def components() -> list[tuple[str, str]]:
    return shipped_components()


def test_every_option_says_what_it_may_be(components: list[tuple[str, str]]) -> None:
    wrong = [
        f"{owner}, {name}: {end}"
        for owner, hints in declared(components).items()
        for name, hint in hints.items()
        if name not in GIVEN and typing.get_origin(hint) is not typing.ClassVar
        for end in open_ends(hint)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_rule_finds_what_is_open() -> None:
    for hint in (int, float | None, list[str], dict[str, Annotated[int, Ge(0)]], Annotated[str, MinLen(1)]):
        assert list(open_ends(hint)), hint
    for hint in (Count | None, dict[Word, list[Share]], Literal["a"], bool, Any):
        assert not list(open_ends(hint)), hint


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_component_refuses_values_that_it_does_not_allow(kind: str, components: list[tuple[str, str]]) -> None:
    wrong = {}
    for name in [name for of, name in components if of == kind]:
        part = parts.find(kind, name)
        for option, hint in parts.options_of(part).types.items():
            for value in () if option in GIVEN else bad_values(hint):
                try:
                    said = f"allowed as {parts.checked(part, {option: value}, 'here')}"
                except WorkbenchError as error:
                    said = str(error)
                if not re.search(rf"here: {option}.* = .*; allowed: ", said):
                    wrong[f"{kind} {name}: {option} = {value!r}"] = said
    assert wrong == {}


@pytest.mark.parametrize(
    ("hint", "value", "wanted"),
    [
        (LearningRate, 1, 1.0),
        (LearningRate, "1e-4", 1e-4),
        (LearningRate | None, None, None),
        (dict[LocalPlace, Share], {"a": 1, "b": "5e-1"}, {"a": 1.0, "b": 0.5}),
        (tuple[Word, ...], ["a", "b"], ("a", "b")),
        (bool, False, False),
    ],
)
def test_what_is_allowed(hint: Any, value: Any, wanted: Any) -> None:
    found = check(hint, value, "key")
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (Count, True, "key = True is of type bool; allowed: a whole number from 1, at most 1,000,000,000,000"),
        (Count, "3", "key = '3' is of type str; allowed: a whole number"),
        (Share, float("nan"), "key = nan; allowed: a number from 0, at most 1"),
        (Share, 10**400, "key = 1000.*...; allowed: a number from 0, at most 1"),
        (list[Share], [0.5, 2], r"key\[1\] = 2; allowed: a number from 0"),
        (Annotated[list[Share], Len(1, 3)], [], r"key = \[\]; allowed: a list of 1 to 3 \(each: a number"),
        (Annotated[list[Share], Len(2, 2)], [0.5], r"key = .*; allowed: a list of exactly 2 \(each"),
        (dict[Word, Count], {"a.b": 1}, "key: the key = 'a.b'; allowed: a word without"),
        (dict[Word, Count], {"a": 0}, r"key\.a = 0; allowed: a whole number from 1"),
        (Count | dict[Word, Count], "x", "key = 'x' is of type str; allowed: a whole number .*, or a mapping"),
        (Annotated[list[Count], Len(1, 100)], [], r"key = \[\]; allowed: a list of 1 to 100 \(each: a whole number"),
        (Annotated[list[Count], Len(2, 2)], [1], r"key = \[1\]; allowed: a list of exactly 2 \("),
        (LocalPlace, " ", "key = ' '; allowed: a path on this machine"),
        (TrainSpec, {"max_steps": 3, "lrr": 1}, "unknown key 'lrr' in key.*Did you mean 'lr'"),
        (TrainSpec, {"max_steps": 3}, "key: the key 'global_batch_size' is missing"),
        (dict[Word, TrainSpec], {"a b": {}}, "key: the name = 'a b'; allowed: a word"),
    ],
)
def test_what_is_refused(hint: Any, value: Any, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        check(hint, value, "key")


def test_a_type_that_nobody_knows_allows_anything() -> None:
    class Open(typing.Protocol):
        def method(self) -> None: ...

    assert check(Open, 3, "key") == 3
    assert described(Open) == "Open"

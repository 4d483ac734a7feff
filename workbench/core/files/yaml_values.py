"""YAML of other people, as plain values.

A recipe is OmegaConf's YAML without what reaches outside of it: `${key}` stands for another value of the same recipe;
OmegaConf's resolvers (`${oc.env:TOKEN}` is the environment's) would put secrets into every copy of the recipe and into
reports, and are refused. No tag makes an object: OmegaConf's loader is YAML's safe one.

Keys that stand for several values at once: `model.**.dropout`, `model.layers[*].num_heads`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import CollectionEndEvent, CollectionStartEvent, YAMLError

from workbench.core.errors import WorkbenchError, shown

T = TypeVar("T")
_STEP = re.compile(r"[^.\[\]]+")  # of an override's key: model.layers[0].num_heads
_KEY = re.compile(r"\$\{[\w.\-\[\]]+\}")
DEEPEST = 50  # lists and mappings inside of one another
MOST = 200_000  # values, those that aliases repeat included; ultra-fine typing alone has 10,331 types
_DEEP = f"values are nested too deeply; allowed are {DEEPEST} lists and mappings inside of one another"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class OverrideError(WorkbenchError):
    """An override that is none, or names nothing in the values it should change."""


def _same(values: Any) -> Any:
    return values


def read_yaml(
    path: Path,
    overrides: Sequence[str] = (),
    make: Callable[[Any], T] = _same,
    prepare: Callable[[Any], Any] = _same,
) -> T:
    """The plain values of a recipe's file, with `key=value` overrides applied and every `${key}` replaced.

    Args:
        make: what is built from the values.
        prepare: what is done to OmegaConf's tree of the file before any override.

    Raises:
        WorkbenchError: no YAML in UTF-8, an override that is none, something else than a key in `${...}`, or what
            `make` refused; names the file, or the first override with which that happens.
    """

    def load() -> Any:
        with path.open(encoding="utf-8") as file:
            _refuse_deep(file)
            file.seek(0)
            return prepare(OmegaConf.load(file, max_yaml_expanded_nodes=MOST))

    return _made(load, overrides, str(path), make)


def changed(tree: Any, overrides: Sequence[str], where: str, make: Callable[[Any], T] = _same) -> T:
    """Plain values with `key=value` overrides applied.

    Raises:
        WorkbenchError: as `read_yaml`; `where` is what stands for the file.
    """
    return _made(lambda: OmegaConf.create(tree), overrides, where, make)


def assignments(values: Mapping[str, Any]) -> list[str]:
    """`key=value` overrides of values by their dotted keys: `{"train.max_steps": 2}` is `["train.max_steps=2"]`."""
    return [f"{key}={_spelt(value)}" for key, value in values.items()]


def _spelt(value: Any) -> str:
    """A value as it is typed: text as it is where it reads as itself, and everything else as JSON, which is YAML."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str) and value and value == value.strip():
        with contextlib.suppress(WorkbenchError):
            if parse_value(value) == value:
                return value
    return json.dumps(value, ensure_ascii=False, default=os.fspath)


def parse_value(text: str) -> Any:
    """The plain value that stands behind an option's `name=`.

    Raises:
        WorkbenchError: it is no YAML.
    """
    try:
        _refuse_deep(text)
        return OmegaConf.to_container(OmegaConf.create(f"value: {text}"), resolve=False)["value"]  # type: ignore
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise WorkbenchError(f"the value is no YAML ({_words(error)})") from error
    except RecursionError as error:
        raise WorkbenchError(_DEEP) from error


def _refuse_deep(text: str | IO[str]) -> None:
    """Parsers call themselves for what is nested, and YAML's C library does so until the process dies."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > DEEPEST:
                raise WorkbenchError(_DEEP)
    except YAMLError as error:
        if "nesting depth" in str(error):  # the limit of newer libyaml, which reads ahead of the events
            raise WorkbenchError(_DEEP) from error
        raise


def _made(load: Callable[[], Any], overrides: Sequence[str], where: str, make: Callable[[Any], T]) -> T:
    try:
        return make(_plain(load, overrides))
    except OverrideError:
        raise
    except WorkbenchError as error:
        # the first override with which it comes to this: without an innocent one something else might be wrong too
        to_this = (n for n in range(len(overrides)) if _refusal(load, overrides[:n], make) == str(error))
        named = next(to_this, len(overrides))
        raise WorkbenchError(f"{_named(overrides[named - 1]) if named else where}: {error}") from error


def _refusal(load: Callable[[], Any], overrides: Sequence[str], make: Callable[[Any], T]) -> str:
    try:
        make(_plain(load, overrides))
    except WorkbenchError as error:
        return str(error)
    return ""


def _plain(load: Callable[[], Any], overrides: Iterable[str]) -> Any:
    try:
        tree = load()
        for text in overrides:
            _apply(tree, text)
        for value in _texts(OmegaConf.to_container(tree, resolve=False)):
            if "${" in _KEY.sub("", value):
                raise WorkbenchError(
                    f"{value!r}: only keys of the recipe itself may stand in ${{...}}, as in ${{vars.data}}; "
                    "nothing is read from the environment. Give such a value as an override, key=value"
                )
        return _with_keys(OmegaConf.to_container(tree, resolve=True), tree)
    except (OmegaConfBaseException, YAMLError, TypeError, ValueError) as error:
        raise WorkbenchError(_words(error)) from error
    except RecursionError as error:
        raise WorkbenchError(_DEEP) from error


def _with_keys(value: Any, tree: Any) -> Any:
    """The values with `${key}` replaced in the keys of mappings too (`corpora: {"${vars.data}/a": 3}`), which OmegaConf
    leaves as they are."""
    if isinstance(value, list):
        return [_with_keys(inner, tree) for inner in value]
    if not isinstance(value, dict):
        return value
    found: dict[Any, Any] = {}
    for key, inner in value.items():
        name = _KEY.sub(lambda named: _named_by(named[0], tree), key) if isinstance(key, str) else key
        if name in found:
            raise WorkbenchError(f"two keys of a mapping are {name!r}; leave one of them out")
        found[name] = _with_keys(inner, tree)
    return found


def _named_by(reference: str, tree: Any) -> str:
    value = OmegaConf.select(tree, reference[2:-1])
    if not isinstance(value, str | int | float):
        raise WorkbenchError(
            f"{reference} in a key: the recipe has no such value, or it is no text or number ({value!r})"
        )
    return str(value)


def _apply(tree: Any, text: str) -> None:
    key, value = _override(text)
    try:
        set_value(tree, key, value)
    except WorkbenchError as error:
        raise OverrideError(f"{_named(text)}: {error}") from error


def set_value(tree: Any, key: str, value: Any) -> None:
    """Set the value at a dotted key of OmegaConf's tree (`train.lr`, `model.layers[0].num_heads`), or at all that a
    pattern stands for (`model.**.num_heads`).

    Raises:
        WorkbenchError: the key leads through something that has no such element; or the pattern stands for nothing.
    """
    if is_pattern(key):
        for each in matching(tree, key):
            set_value(tree, each, value)
        return
    _check_elements(tree, key)
    try:
        OmegaConf.update(tree, key, value, merge=False)
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise WorkbenchError(_words(error)) from error


def _check_elements(tree: Any, key: str) -> None:
    """OmegaConf's own words on a list's elements say neither which list nor how many there are."""
    so_far = ""
    for step in _STEP.findall(key):
        if isinstance(tree, ListConfig):
            there = f"{so_far} has {len(tree)} element{'s' * (len(tree) != 1)}, numbered from 0"
            if not re.fullmatch(r"-?\d+", step) or not -len(tree) <= int(step) < len(tree):
                raise WorkbenchError(
                    f"there is no {so_far}[{step}]: {there}. To add one, give the whole list: {so_far}=[...]"
                )
        elif not isinstance(tree, DictConfig):
            return
        so_far += f"[{step}]" if isinstance(tree, ListConfig) else f".{step}" if so_far else step
        tree = tree[int(step)] if isinstance(tree, ListConfig) else tree.get(step)


def _named(override: str) -> str:
    return f"override {shown(override)}"


def _words(error: Exception) -> str:
    if "set_int_max_str_digits" in str(error):  # Python's advice to programmers
        return f"a whole number has more than {sys.get_int_max_str_digits():,} digits, which is the most that is read"
    return " ".join(str(error).split())


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise OverrideError(f"{_named(text)} is not of the form key=value (for example train.lr=1e-4)")
    try:
        return key, parse_value(value)
    except WorkbenchError as error:
        raise OverrideError(f"{_named(text)}: {error}") from error


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        tree = [*tree.keys(), *tree.values()]
    if isinstance(tree, list):
        for inner in tree:
            yield from _texts(inner)
    elif isinstance(tree, str):
        yield tree


ANY, ANY_DEPTH = "*", "**"
_PATTERN_STEP = re.compile(r"[^.\[\]]+")


def is_pattern(key: str) -> bool:
    """Whether one of the steps of a key is `*` or `**`."""
    return not {ANY, ANY_DEPTH}.isdisjoint(_PATTERN_STEP.findall(key))


def matching(tree: Any, key: str) -> list[str]:
    """The keys of all values in OmegaConf's tree that a pattern stands for, in their order.

    `*` is any one key of a mapping or any element of a list, `**` any number of them, none included. What a pattern
    stands for is there already: it adds nothing.

    Raises:
        WorkbenchError: there is none.
    """
    steps = _PATTERN_STEP.findall(key)
    if steps[-1] in (ANY, ANY_DEPTH):
        raise WorkbenchError(f"{key} names no value; a pattern ends with a name, as in model.{ANY_DEPTH}.dropout")
    found = list(dict.fromkeys(_matching(tree, steps, "")))
    if not found:
        raise WorkbenchError(
            f"{key} stands for no value that is there; {ANY} is any one key or element, {ANY_DEPTH} any number, "
            "and what the file leaves to a default has to be named in full"
        )
    return found


def _matching(tree: Any, steps: list[str], so_far: str) -> Iterator[str]:
    if not steps:
        yield so_far
        return
    step, *others = steps
    if step == ANY_DEPTH:
        yield from _matching(tree, others, so_far)
    for name, inner, place in _inner(tree, so_far):
        if step == ANY_DEPTH:
            yield from _matching(inner, steps, place)
        elif step in (ANY, name):
            yield from _matching(inner, others, place)


def _inner(tree: Any, so_far: str) -> Iterator[tuple[str, Any, str]]:
    """What a mapping or a list holds: its name, itself, and its key."""
    if isinstance(tree, ListConfig):
        for number in range(len(tree)):
            yield str(number), tree._get_node(number), f"{so_far}[{number}]"
    elif isinstance(tree, DictConfig):
        for name in map(str, tree):
            yield name, tree._get_node(name), f"{so_far}.{name}" if so_far else name

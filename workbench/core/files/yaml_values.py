"""YAML files from any source, as plain values.

A recipe is OmegaConf's YAML without references to the outside. `${key}` is another value of the same recipe.
OmegaConf's resolvers (`${oc.env:TOKEN}` reads the environment) would put secrets into every copy of the recipe and into
reports, and are refused. No tag creates an object: OmegaConf uses YAML's safe loader.

A pattern is a key that stands for several values at once: `model.**.dropout`, `model.layers[*].num_heads`.
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
from yaml import CollectionEndEvent, CollectionStartEvent, ScalarEvent, YAMLError

from workbench.core.errors import WorkbenchError, shown

T = TypeVar("T")
_WORDS = re.compile(r"[^.\[\]]+")  # the words of a key: model.layers[0].num_heads
_KEY = re.compile(r"\$\{[\w.\-\[\]]+\}")
DEEPEST = 50  # levels of nested lists and mappings
MOST = 200_000  # values, including repetitions by aliases; ultra-fine typing alone has 10,331 types
_DEEP = f"values are nested too deeply; allowed: {DEEPEST} levels of lists and mappings"
_NUMBER = re.compile(r"[-+]?(0[0-9_]*[0-9][0-9_]*|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class OverrideError(WorkbenchError):
    """An override that is malformed, or names no existing value."""


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
        make: converts the values into the result.
        prepare: changes OmegaConf's tree of the file before any override.

    Raises:
        WorkbenchError: no YAML in UTF-8, an empty value (null is written out), a malformed override, something other
            than a key in `${...}`, or an error of `make`. The message names the file, or the first override that causes
            the error.
    """

    def load() -> Any:
        with path.open(encoding="utf-8") as file:
            _check(file)
            file.seek(0)
            return prepare(OmegaConf.load(file, max_yaml_expanded_nodes=MOST))

    return _result(load, overrides, str(path), make)


def changed(tree: Any, overrides: Sequence[str], where: str, make: Callable[[Any], T] = _same) -> T:
    """Plain values with `key=value` overrides applied.

    Raises:
        WorkbenchError: as `read_yaml`; `where` replaces the file's name.
    """
    return _result(lambda: OmegaConf.create(tree), overrides, where, make)


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
    """The plain value of an option's `name=value`, from the text after `=`.

    Raises:
        WorkbenchError: it is not YAML, is empty, or has a number with a zero in front or a colon.
    """
    try:
        _check(text := f"value: {text}")
        return OmegaConf.to_container(OmegaConf.create(text), resolve=False)["value"]  # type: ignore
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise WorkbenchError(f"the value is not YAML ({_words(error)})") from error
    except RecursionError as error:
        raise WorkbenchError(_DEEP) from error


def _check(text: str | IO[str]) -> None:
    """Refuse deep nesting before parsing: parsers are recursive, and YAML's C library would crash the process. Also
    refuse values that YAML reads in silence as others than were meant: nothing as null, 010 as 8, 1:30 as 90."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > DEEPEST:
                raise WorkbenchError(_DEEP)
            wrong = _mistaken(event.value) if isinstance(event, ScalarEvent) and event.implicit[0] else None
            if wrong is not None:
                mark = None if isinstance(text, str) else event.start_mark
                raise WorkbenchError(wrong if mark is None else f"line {mark.line + 1}: {wrong}")
    except YAMLError as error:
        if "nesting depth" in str(error):  # newer libyaml has a limit, and reads ahead of the events
            raise WorkbenchError(_DEEP) from error
        raise


def _mistaken(plain: str) -> str | None:
    """Why a value without quotes is refused."""
    if not plain:
        return "the value is empty (an unset variable?); allowed: null for no value, '' in quotes for an empty text"
    if _NUMBER.fullmatch(plain):
        return (
            f"{plain} is no decimal number: YAML reads a zero in front as base 8, and a colon as base 60. "
            f"Leave them out; as a text it needs quotes: '{plain}'"
        )
    return None


def _result(load: Callable[[], Any], overrides: Sequence[str], where: str, make: Callable[[Any], T]) -> T:
    try:
        return make(_plain(load, overrides))
    except OverrideError:
        raise
    except WorkbenchError as error:
        # name the first override that causes the error; skipping others might cause different errors
        causes = (n for n in range(len(overrides)) if _refusal(load, overrides[:n], make) == str(error))
        named = next(causes, len(overrides))
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
                    f"{value!r}: only keys of the recipe itself are allowed in ${{...}}, as in ${{vars.data}}; "
                    "the environment is not read. Set such a value with an override, key=value"
                )
        return _with_keys(OmegaConf.to_container(tree, resolve=True), tree)
    except (OmegaConfBaseException, YAMLError, TypeError, ValueError) as error:
        raise WorkbenchError(_words(error)) from error
    except RecursionError as error:
        raise WorkbenchError(_DEEP) from error


def _with_keys(value: Any, tree: Any) -> Any:
    """The values with `${key}` also replaced in the keys of mappings (`corpora: {"${vars.data}/a": 3}`), which
    OmegaConf does not do."""
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
            f"{reference} in a key: the recipe has no such value, or it is neither text nor a number ({value!r})"
        )
    return str(value)


def _apply(tree: Any, text: str) -> None:
    key, value = _override(text)
    try:
        set_value(tree, key, value)
    except WorkbenchError as error:
        raise OverrideError(f"{_named(text)}: {error}") from error


def set_value(tree: Any, key: str, value: Any) -> None:
    """Set the value at a dotted key of OmegaConf's tree (`train.lr`, `model.layers[0].num_heads`), or all values that a
    pattern matches (`model.**.num_heads`).

    Raises:
        WorkbenchError: the key leads through a value without such an element; or the pattern matches nothing.
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
    """Refuse a list element that does not exist. OmegaConf's own message has neither the list's key nor its length."""
    so_far = ""
    for word in _WORDS.findall(key):
        if isinstance(tree, ListConfig):
            there = f"{so_far} has {len(tree)} element{'s' * (len(tree) != 1)}, numbered from 0"
            if not re.fullmatch(r"-?\d+", word) or not -len(tree) <= int(word) < len(tree):
                raise WorkbenchError(
                    f"there is no {so_far}[{word}]: {there}. To add one, give the whole list: {so_far}=[...]"
                )
        elif not isinstance(tree, DictConfig):
            return
        so_far += f"[{word}]" if isinstance(tree, ListConfig) else f".{word}" if so_far else word
        tree = tree[int(word)] if isinstance(tree, ListConfig) else tree.get(word)


def _named(override: str) -> str:
    return f"override {shown(override)}"


def _words(error: Exception) -> str:
    if "set_int_max_str_digits" in str(error):  # Python's own message addresses programmers
        return f"a whole number has more than {sys.get_int_max_str_digits():,} digits, which is the limit"
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


def is_pattern(key: str) -> bool:
    """Whether a key contains `*` or `**`."""
    return not {ANY, ANY_DEPTH}.isdisjoint(_WORDS.findall(key))


def matching(tree: Any, key: str) -> list[str]:
    """The keys of all values in OmegaConf's tree that a pattern matches, in their order.

    `*` is any one key of a mapping or any element of a list; `**` is any number of them, including none. A pattern
    matches existing values and adds nothing.

    Raises:
        WorkbenchError: no value matches.
    """
    words = _WORDS.findall(key)
    if words[-1] in (ANY, ANY_DEPTH):
        raise WorkbenchError(f"{key} names no value; a pattern ends with a name, as in model.{ANY_DEPTH}.dropout")
    found = list(dict.fromkeys(_matching(tree, words, "")))
    if not found:
        raise WorkbenchError(
            f"{key} matches no value; {ANY} is any one key or element, {ANY_DEPTH} any number of them. "
            "A value that the file leaves to its default has to be named in full"
        )
    return found


def _matching(tree: Any, words: list[str], so_far: str) -> Iterator[str]:
    if not words:
        yield so_far
        return
    word, *others = words
    if word == ANY_DEPTH:
        yield from _matching(tree, others, so_far)
    for name, inner, place in _inner(tree, so_far):
        if word == ANY_DEPTH:
            yield from _matching(inner, words, place)
        elif word in (ANY, name):
            yield from _matching(inner, others, place)


def _inner(tree: Any, so_far: str) -> Iterator[tuple[str, Any, str]]:
    """The children of a mapping or list: name, value and key of each."""
    if isinstance(tree, ListConfig):
        for number in range(len(tree)):
            yield str(number), tree._get_node(number), f"{so_far}[{number}]"
    elif isinstance(tree, DictConfig):
        for name in map(str, tree):
            yield name, tree._get_node(name), f"{so_far}.{name}" if so_far else name

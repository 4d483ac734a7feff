"""Values that make no sense, for every command, key of a recipe and option of a component, from their declarations."""

from __future__ import annotations

import dataclasses
import re
import shlex
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, Literal

import typer
from annotated_types import Ge, Gt, Le, Len, Lt, MinLen
from pydantic import StringConstraints
from typer.models import ArgumentInfo, ParameterInfo

from workbench.cli.app import COMMANDS, Commands
from workbench.components import building as parts
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import COMMAND, options_of
from workbench.models.embeddings.token import TokenEmbedding
from workbench.models.layers.self import SelfLayer
from workbench.objectives._token_head import BertHeadOptions, HeadTransform
from workbench.objectives.mlm import Mlm
from workbench.optimization.lr_schedules import LinearSchedule
from workbench.optimization.optimizers import Adamw
from workbench.recipe.spec import NetworkSpec, Recipe, TaskSpec
from workbench.recipe.train_spec import TrainSpec
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.replacement import ReplacementOptions

NEEDED = {"over": "train.lr=1e-4..1e-2"}
"""Required options that `x` does not satisfy."""
NOT_A_NUMBER: tuple[Any, ...] = ("abc", True, float("nan"), float("inf"), -float("inf"))
WHERE: dict[str, dict[str, Any]] = {
    "": typing.get_type_hints(Recipe, include_extras=True),
    "train.": typing.get_type_hints(TrainSpec, include_extras=True),
    "train.optimizer.": parts.options_of(Adamw).types,
    "train.lr_schedule.": parts.options_of(LinearSchedule).types,
    "tasks.text.": typing.get_type_hints(TaskSpec, include_extras=True),
    "model.": typing.get_type_hints(NetworkSpec, include_extras=True),
    "model.streams.text.": parts.options_of(TokenEmbedding).types,
    "model.layers.0.": parts.options_of(SelfLayer).types,
    "tasks.text.sequence.": parts.options_of(DocumentBuilder).types,
    "tasks.text.objectives.0.": parts.options_of(Mlm).types,
    "tasks.text.objectives.0.replace.": typing.get_type_hints(ReplacementOptions, include_extras=True),
    "tasks.text.objectives.0.head.": typing.get_type_hints(BertHeadOptions, include_extras=True),
    "tasks.text.objectives.0.head.transform.": typing.get_type_hints(HeadTransform, include_extras=True),
}
"""Places in a recipe of one text stream, and what is declared there."""
GIVEN = (
    "sizes",
    "tokenizer",
    "vocab_size",
    "vars",
    "params",
)  # what the caller has, and what is read before keys are checked
HAND = {
    "train.optimizer.betas": ["[2,3]", "[-1,0.9]", "[0.9]", "[0.9,1.0]", "0.9", "[a,b]", "[0.9,0.99,0.999]"],
    "train.lr_schedule.warmup_steps": ["200", "1000000"],
    "train.lr_schedule": ["wavy", "3"],
    "train.groups": ["[3]", "[{match: nonsense}]", "[{match: heads, start_step: 1}, {match: networks, start_step: 1}]"],
    "train.train_only": ["[nonsense]"],
    "train.num_workers": ["1000000"],
    "train.micro_batch_size": ["3"],
    "train.nonsense": ["1"],
    "train.max_step": ["1"],
    "name": ["a/b", "..", ".hidden", "' '", "/tmp/x"],
    "model.streams": ["{}"],
    "model.layers": ["[{}]", "[3]", "[{layer: nonsense}]", "[{group: []}]", "[{layer: self, stream: text}]"],
    "model.layers.0.num_heads": ["5", "64"],
    "model.layers.0.repeat": ["0", "-1", "1.5", "abc", ".nan", "100000"],
    "model.layers.0.share": ["nonsense", "3"],
    "model.layers.0.layer": ["nonsense", "3"],
    "model.layers.0.stream": ["nonsense"],
    "model.layers.0.nonsense": ["1"],
    "model.streams.text.hidden_size": ["100000000", "-32", "1e8", "1048576"],
    "model.streams.text.max_positions": ["16"],
    "model.streams.text.embedding": ["nonsense", "3"],
    "model.poolers": ["[nonsense]"],
    "tasks": ["{}"],
    "tasks.text.corpora": ["[]", "{corpora/text: -1}", "{corpora/text: 0}", "{corpora/text: .nan}", "['']"],
    "tasks.text.sequence.max_length": ["1", "100000"],
    "tasks.text.sequence.builder": ["nonsense", "3"],
    "tasks.text.sequence.nonsense": ["1"],
    "tasks.text.objectives": ["[]", "[3]", "[{}]", "[{objective: nonsense}]"],
    "tasks.text.objectives.0.replace.mask": ["0.95"],
    "tasks.text.objectives.0.masking": ["nonsense", "{masking: span, p: 2}", "{masking: field, probability: -1}"],
    "tasks.text.objectives.0.weight": ["-1", ".nan", ".inf", "abc"],
    "tasks.text.objectives.0.name": ["a.b", "a/b", "''"],
    "tasks.text.objectives.0.network": ["nonsense"],
    "seed": ["99999999999"],
}
"""What no single type says: unknown names, values that do not fit others."""


@dataclass(frozen=True)
class Bad:
    """A command line with one value that makes no sense, and the key or option that the message must name."""

    key: str
    command: str


def flaw(key: str, code: int, said: str) -> str:
    """What is wrong with the answer to a bad value of this key or option; empty where it is as it should be."""
    said = " ".join(said.split())
    if code != 2:
        return f"exit code {code}: {said[-300:]}"
    if "Traceback" in said or len(re.findall(r"(?:^|\s)error: |─ Error ─", said)) != 1:
        return f"not one message: {said[-300:]}"
    named = key.lstrip("-").rsplit(".", 1)[-1]
    return "" if named in said else f"the message does not name {named!r}: {said[-300:]}"


def of_recipes(recipe: str) -> Iterator[Bad]:
    """`pretrain RECIPE KEY=VALUE --output out`, for a recipe whose task `text` is a document with mlm."""
    for place, hints in WHERE.items():
        for name, hint in hints.items():
            values = () if name in GIVEN else map(_as_yaml, bad_values(hint))
            for value in dict.fromkeys((*values, *HAND.get(f"{place}{name}", ()))):
                yield _override(recipe, f"{place}{name}", value)
    for key, values in HAND.items():
        place, _, name = key.rpartition(".")
        if name not in WHERE.get(f"{place}." if place else "", {}):
            yield from (_override(recipe, key, value) for value in values)


def _override(recipe: str, key: str, value: str) -> Bad:
    return Bad(key, f"pretrain {recipe} {shlex.quote(f'{key}={value}')} --output out")


def of_commands() -> Iterator[Bad]:
    """Every option of every command with values that its type does not allow; the other arguments name nothing."""
    for name, function in all_commands():
        options = list(options_of(function))
        for option in options:
            info = _info(option)
            if isinstance(info, ArgumentInfo):
                continue
            flag = _flag(option)
            needed = " ".join(_needed(other) for other in options if other.name != option.name)
            for value in bad_values(option.annotation):
                if value is True or isinstance(value, list | dict):
                    continue
                yield Bad(flag, f"{name} {needed} {shlex.quote(f'{flag}={value}')}")


def all_commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Name and function of every command, those of groups included."""
    yield from _commands(Commands(COMMANDS, ""), "")


def _commands(group: Commands, before: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in group.entries:
        try:
            target = group._load("workbench", name, [])
        except WorkbenchError:  # `finetune` of a task for evaluation alone
            continue
        if isinstance(target, Commands):
            yield from _commands(target, f"{before}{name} ")
            continue
        found: typer.Typer = target
        single = len(found.registered_commands) == 1
        for registered in found.registered_commands:
            assert registered.callback is not None
            function = getattr(registered.callback, COMMAND)
            own = "" if single else f" {function.__name__.replace('_', '-')}"
            yield f"{before}{name}{own}", function


def _info(option: Parameter) -> ParameterInfo | None:
    metadata = typing.get_args(option.annotation)[1:] if typing.get_origin(option.annotation) is Annotated else ()
    return next((m for m in metadata if isinstance(m, ParameterInfo)), None)


def _needed(option: Parameter) -> str:
    if option.default is not Parameter.empty:
        return ""
    return "x" if isinstance(_info(option), ArgumentInfo) else f"{_flag(option)} {NEEDED.get(option.name, 'x')}"


def _flag(option: Parameter) -> str:
    info = _info(option)
    stated = [getattr(info, "default", None), *(getattr(info, "param_decls", None) or ())]
    declared = [name for name in stated if isinstance(name, str) and name.startswith("--")]
    return declared[0] if declared else f"--{option.name.replace('_', '-')}"


def bad_values(hint: Any) -> list[Any]:
    """Values that an annotation does not allow."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return [*_outside(arguments[0], arguments[1:]), *bad_values(arguments[0])]
    if origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        return bad_values(members[0]) if len(members) == 1 else []
    if origin is Literal:
        return ["nonsense"]
    if dataclasses.is_dataclass(hint) or origin in (dict, list):
        return [{"a": 1}] if origin is list else [[3]]
    return {int: [1.5, *NOT_A_NUMBER], float: [*NOT_A_NUMBER], bool: ["maybe"]}.get(hint, [])


def _outside(kind: Any, metadata: tuple[Any, ...]) -> Iterator[Any]:
    whole = kind is int
    for bound in metadata:
        match bound:
            case Ge(ge=limit):
                yield from (limit - 1, -7) if whole else (limit - 0.1, limit - 50.0)  # type: ignore[operator]
            case Gt(gt=limit):
                yield from (limit, limit - 1)  # type: ignore[operator]
            case Le(le=limit):
                yield limit + 1  # type: ignore[operator]
            case Lt(lt=limit):
                yield from (limit, limit + 1)  # type: ignore[operator]
            case MinLen() | Len():
                yield {list: [], dict: {}, str: ""}.get(typing.get_origin(kind) or kind)
            case StringConstraints(pattern=pattern) if pattern is not None:
                yield ""


def _as_yaml(value: Any) -> str:
    if isinstance(value, float):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(str(value), str(value))
    return "''" if value == "" else str(value).lower() if isinstance(value, bool) else str(value)

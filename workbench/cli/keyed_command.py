"""A command that takes changes to a recipe, as KEY=VALUE: a key given as an option is answered with the change."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection
from typing import Any

from typer.core import TyperCommand

from workbench.core.errors import WorkbenchError

KEYS = "KEY=VALUE"
"""The metavar of the argument with the changes."""


class KeyedCommand(TyperCommand):
    """A command whose message on an unknown option names the key of the recipe that may be meant."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """
        Raises:
            WorkbenchError: there is no such option, and the command takes changes to a recipe.
        """
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ == "MissingParameter" and not getattr(error, "message", ""):
                error.message = getattr(error.param, "help", None) or ""  # type: ignore[attr-defined]
            if type(error).__name__ != "NoSuchOption" or all(param.metavar != KEYS for param in self.params):
                raise  # typer may bring its own copy of click, so the class is known by its name
            own = {spelling for param in self.params for spelling in param.opts}
            raise _no_option(
                given, str(getattr(error, "option_name", "")), getattr(error, "possibilities", None) or (), own
            ) from None


def _no_option(args: list[str], option: str, near: Any, own: Collection[str]) -> WorkbenchError:
    from workbench.recipe.foreign_names import OPTIONS

    name, value = option.strip("-").replace("-", "_"), _value(args, option)
    change = f"Write {OPTIONS[name]} {shlex.quote(value)}." if OPTIONS.get(name) in own else _change(name, value)
    guess = "" if change or not near else f" The nearest options: {', '.join(near)}."
    return WorkbenchError(
        f"there is no option {option}.{guess} {change or 'The options are in --help.'} Keys of the recipe are given "
        "without dashes, as KEY=VALUE"
    )


def _value(args: list[str], option: str) -> str:
    """The word that follows the option, or its text after `=`."""
    for word, following in zip(args, [*args[1:], ""], strict=True):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and following and "=" not in following:
            return following
    return "..."


def _change(key: str, value: str) -> str:
    """A sentence with the change that an option of this name means; empty if no key of a recipe has the name."""
    from workbench.recipe.foreign_names import key_hint
    from workbench.recipe.spec import NetworkSpec, Recipe, SequenceSpec, TaskSpec
    from workbench.recipe.train_spec import TrainSpec

    places = {"train.": TrainSpec, "": Recipe, "model.": NetworkSpec, "tasks.NAME.": TaskSpec}
    owners = [place for place, spec in places.items() if key in {field.name for field in dataclasses.fields(spec)}]
    if key in {field.name for field in dataclasses.fields(SequenceSpec)}:
        owners.append("tasks.NAME.sequence.")
    if "." in key or owners:
        change = f"{owners[0] if owners else ''}{key}={value}"
        return f"Write {shlex.quote(change)}."
    return key_hint(key)

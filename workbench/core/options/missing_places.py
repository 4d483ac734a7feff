"""Messages about places that are missing: the option or key that names one, and the nearest name that is there.

Who opens a place says what is missing and how to make it. It knows neither the option nor what else is in the folder,
so both are added where the options are known: for a command, and for a component of a recipe.
"""

from __future__ import annotations

import errno
import os
import re
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError, nearest, system_error
from workbench.core.files.urls import LOCAL_ONLY, url_of
from workbench.core.local_copies import place_of
from workbench.core.options.bounds import READ, Means
from workbench.core.options.path_options import is_path

OF_PLACES = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM}
"""Errors of the system about a place: there is none, it is of the wrong kind, or may not be read."""
_OF_KIND = re.compile(
    r"there is no |is not an? |\bis no |holds no |cannot be read|No such|(Is|Not) a directory|os error"
)
_FILE = re.compile(r"no (such )?file|Is a directory|os error")
MANY = 5_000
"""Names of a folder that are compared at most."""


def is_place(hint: Any) -> bool:
    """Whether an annotation is that of a file or folder, or of a list of them."""
    return is_path(hint) or _means_place(hint)


def _means_place(hint: Any) -> bool:
    if isinstance(hint, Means):
        return hint.words in (READ, LOCAL_ONLY)
    return any(map(_means_place, typing.get_args(hint)))


@contextmanager
def named_places(hints: Mapping[str, Any], values: Mapping[str, Any], where: Mapping[str, str]) -> Iterator[None]:
    """A block whose errors about a place name the option, and the nearest name where nothing is at the place.

    Args:
        hints, values, where: the annotations, the values and the spellings of options, by name.

    Raises:
        WorkbenchError: an error of the system about one of these places, in addition to what the block raises.
    """
    places = [
        (where[name], place)
        for name, value in values.items()
        if is_place(hints.get(name))
        for place in (value if isinstance(value, list | tuple) else [value])
        if isinstance(place, str | Path)
    ]
    try:
        yield
    except WorkbenchError as error:
        if type(error).__str__ is Exception.__str__:  # others have parts of their own
            error.args = (_completed(str(error), places),)
        raise
    except OSError as error:
        named = [os.fsdecode(each) for each in (error.filename, error.filename2) if isinstance(each, str | bytes)]
        option = next((option for option, place in places if any(_within(each, place) for each in named)), None)
        if option is None or error.errno not in OF_PLACES:
            raise
        refusal = system_error(error)
        text = str(refusal)
        refusal.args = (_completed(_with_option(option, text), places),)
        raise refusal from error


def _within(path: str, place: str | Path) -> bool:
    """Whether a path is that of a place, or lies in it."""
    return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(place))


def _completed(text: str, places: list[tuple[str, str | Path]]) -> str:
    """A message about a place that is missing, or of the wrong kind, with its option and what is there."""
    for option, place in places if " is in use" not in text else ():  # that names the command of another process
        shown = place_of(place)
        if not re.search(rf"(?<![\w/.-]){re.escape(shown)}(?![\w-])", text) and os.path.abspath(place) not in text:
            continue
        missing = url_of(shown) is None and not os.path.lexists(place)
        if missing or _OF_KIND.search(text):
            text = _with_option(option, text)
            hint = did_you_mean(Path(place)) if missing else _kind_of(place, shown, text)
            return text if not hint or "Did you mean" in text else f"{text.rstrip('.')}. {hint}"
    return text


def _with_option(option: str, text: str) -> str:
    """The message with the option in front, unless it names it; one of Python's names may also be a word of it."""
    named = text.startswith(option) if option.islower() and not option.startswith("--") else option in text
    return text if named else f"{option}: {text}"


def _kind_of(place: str | Path, shown: str, text: str) -> str:
    return f"{shown} is a folder; name a file" if _FILE.search(text) and os.path.isdir(place) else ""


def did_you_mean(path: Path) -> str:
    """The nearest existing path, or a file on the way, in words; empty where there is neither."""
    missing = next((part for part in (*reversed(path.parents), path) if not os.path.lexists(part)), None)
    if missing is None:
        return ""
    if not missing.parent.is_dir():
        return f"{missing.parent} is a file, and no folder"
    try:
        names = os.listdir(missing.parent)
    except OSError:
        return ""
    close = nearest(missing.name, names[:MANY])
    return f"Did you mean {missing.parent / close[0] / path.relative_to(missing)}?" if close else ""

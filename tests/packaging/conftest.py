"""The built wheel, unpacked in a folder of its own, and Python with nothing but that on its path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("workbench", "kg", "vision", "pipelines")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources (a build leaves files next to them)."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    for name in PACKAGES:
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources / name)
    return built("wheel", sources, folder)


@pytest.fixture(scope="session")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built from a copy of the files that git tracks."""
    folder = tmp_path_factory.mktemp("sdist")
    sources = folder / "sources"
    for name in tracked_files():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, sources / name)
    return built("sdist", sources, folder)


def built(kind: str, sources: Path, folder: Path) -> Path:
    """The package of a kind (wheel, sdist) that is built from sources into a folder."""
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(folder), str(sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (package,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return package


def tracked_files() -> set[str]:
    """Paths of the checkout that belong to the project."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this folder is no git checkout")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents and nothing else (what `pip install --no-deps --target` makes)."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Runs Python in an empty folder with only the installed wheel on the path."""

    def python(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return python

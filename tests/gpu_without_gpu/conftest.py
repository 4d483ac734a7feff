"""The pretend device, built once, and processes that see it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_without_gpu.building import ROOT, build, environment, unable
from tests.recipes.conftest import World, write_world

TIMEOUT_S = 900


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the workers of one pytest-xdist session share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One worker at a time; the others wait."""
    with place.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def device(together: Path) -> Path:
    """The folder of the pretend device's libraries."""
    if reason := unable():
        pytest.skip(reason)
    place = together / "pretend-device"
    with _alone(place):
        return build(place)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The small corpora of `tests/recipes`."""
    return write_world(tmp_path_factory.mktemp("world"))


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def on_device(device: Path, tmp_path: Path) -> Run:
    """Runs Python with arguments where a CUDA device is pretended; `settings` as in `building.environment`."""

    def run(*arguments: str, fails: bool = False, timeout: float = TIMEOUT_S, **settings: str) -> Any:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment(device, **settings),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert fails or done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
        return done

    return run


@pytest.fixture(scope="session")
def steps_of(device: Path, together: Path) -> Callable[[list[str]], dict[str, Any]]:
    """What `recipe_steps.py` finds of recipes: of each group one process, whoever asks first starts it."""

    def find(names: list[str]) -> dict[str, Any]:
        place = together / f"steps-{names[0]}.json"
        with _alone(place):
            if not place.is_file():
                command = [sys.executable, "-m", "tests.gpu_without_gpu.recipe_steps", "--output", str(place), *names]
                done = subprocess.run(
                    command, env=environment(device), cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
                )
                assert place.is_file(), f"{' '.join(command)}\n{done.stderr[-6000:]}"
        found: dict[str, Any] = json.loads(place.read_text())
        return found

    return find

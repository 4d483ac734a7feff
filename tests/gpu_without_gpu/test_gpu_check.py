"""The checks for owners of GPUs on the pretend device: the paths are real, and so are values that the CPU computes.

Times, idle shares and what flash attention drops say nothing here, so checks of these may fail; no section may raise.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.simulator

building = pytest.importorskip("tests.gpu_without_gpu.building", reason="the pretend device's sources are not here")

VALUES = ("kernels", "recipes", "resume")
"""Sections whose checks compare values, and so must pass."""
UNTOLD = ("the profiler recorded nothing of the card",)
"""What the pretend device cannot do."""


def checked(device: Path, folder: Path, *parts: str, seconds: int) -> dict[str, Any]:
    """The JSON of a check in the tiny size."""
    command = [sys.executable, "-m", "tests.gpu_without_gpu.emulated_check", "--output", str(folder), "--size", "tiny"]
    command += ["--seconds", str(seconds), *(word for part in parts for word in ("--part", part))]
    environment = building.environment(device)
    done = subprocess.run(command, env=environment, cwd=building.ROOT, capture_output=True, text=True, timeout=900)
    numbers = folder / "gpu-check.json"
    assert numbers.is_file(), f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    found: dict[str, Any] = json.loads(numbers.read_text())
    assert done.returncode == {True: 0, False: 1, None: 3}[found["passed"]]
    return found


def look(found: dict[str, Any], folder: Path, *parts: str) -> None:
    """Every section ran to its end without an error, values agree, the page is whole."""
    by_name = {part["part"]: part for part in found["parts"]}
    assert list(by_name) == ["corpora", *parts]
    page = (folder / "gpu-check.md").read_text()
    for name, part in by_name.items():
        assert part["error"] is None
        assert part["checks"], name
        assert not part["skipped"], name
        assert f"## {name}: {part['title']}" in page
        for check in part["checks"]:
            error = check["numbers"].get("error", "")
            if isinstance(error, str) and error and not any(reason in error for reason in UNTOLD):
                pytest.fail(f"{name}, {check['name']}: {error}")
            if name in VALUES:
                assert check["passed"], (name, check["name"], check["found"])
    for fact in ("card", "driver", "cuda", "memory_gib"):
        assert found[fact]
    assert {"python", "torch", "git"} <= found["versions"].keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "seconds"),
    [(("kernels",), 300), (("recipes", "resume"), 1200), (("speed", "waits", "idle", "loader"), 1200)],
)
def test_every_part_runs_to_its_end(device: Path, tmp_path: Path, parts: tuple[str, ...], seconds: int) -> None:
    look(checked(device, tmp_path, *parts, seconds=seconds), tmp_path, *parts)

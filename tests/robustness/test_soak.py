"""A few trials of every area of `tests.robustness.soak`, in an interpreter of their own.

The trials fork, and a process in which other tests left threads and locks behind is none to fork from.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.robustness.soak.processes import ROOT


@pytest.mark.scale
def test_bounded_trials(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "tests/robustness/soak/bounded.py", "-q", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'trials'}"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout

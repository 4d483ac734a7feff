"""Workers end with the process that started them, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pipelines.processes import each
from workbench.errors import MachineError

SCRIPT = """
import time
from pipelines.processes import each

def slow(context, item):
    print("working", flush=True)
    time.sleep(60)
    return item

if __name__ == "__main__":
    list(each(slow, None, range(4), 2))
"""


def killed(context: None, number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def exited(context: None, number: int) -> int:
    if number == 3:
        os._exit(7)
    return number


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (killed, r"a worker \(process \d+\) was killed by SIGKILL, .*memory.*fewer --workers"),
        (exited, r"a worker \(process \d+\) ended with exit code 7; .*--workers 1"),
    ],
)
def test_a_worker_that_dies_is_the_machines_failure(function: Callable[[None, int], int], told: str) -> None:
    with pytest.raises(MachineError, match=told):
        list(each(function, None, range(20), 2))


def test_workers_of_a_killed_parent_end(tmp_path: Path) -> None:
    (tmp_path / "prepare_slowly.py").write_text(SCRIPT)
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-u", str(tmp_path / "prepare_slowly.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(root)}, text=True)
    assert process.stdout is not None
    assert "working" in process.stdout.readline()
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and any(w.is_running() and w.status() != "zombie" for w in workers):
        time.sleep(0.05)
    assert not [w for w in workers if w.is_running() and w.status() != psutil.STATUS_ZOMBIE]

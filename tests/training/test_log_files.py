"""What is written next to the checkpoints: on a disk that fails it must not drown the message."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from workbench.core.processes.distributed import World
from workbench.core.terminal import Terminal
from workbench.training.display import run_logging
from workbench.training.tracker import TrackedRun
from workbench.training.trackers.tensorboard import TensorboardTracker

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_log_on_a_full_disk_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.txt").symlink_to(FULL)
    with run_logging(tmp_path, World(), Terminal(stderr=True)) as planned:
        planned()
        logging.getLogger("workbench.training").info("a line that does not fit")
    said = capsys.readouterr().err
    assert "a line that does not fit" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("error", "reported"), [(OSError(28, "No space left on device"), False), (ValueError("x"), True)]
)
def test_only_bugs_of_threads_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reported: bool
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    tracker = TensorboardTracker()
    tracker.begin(TrackedRun("it", "0" * 32, tmp_path, 0, {}))

    def fail() -> None:
        raise error

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    tracker.end(False)
    assert bool(seen) == reported
    assert threading.excepthook == seen.append

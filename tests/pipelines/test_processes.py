"""Workers end with the process that started them, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.preparing.engines.local import LocalEngine, held_back
from workbench.core.errors import MachineError

SCRIPT = """
import time
from pipelines.preparing.engines.local import LocalEngine

def slow(context, item):
    print("working", flush=True)
    time.sleep(60)
    return item

if __name__ == "__main__":
    list(LocalEngine(2).each(slow, None, range(4)))
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
    ("function", "reported"),
    [
        (killed, r"a worker \(process \d+\) was killed by SIGKILL, .*memory.*fewer --workers"),
        (exited, r"a worker \(process \d+\) ended with exit code 7; .*--workers 1"),
    ],
)
def test_a_worker_that_dies_is_the_machines_failure(function: Callable[[None, int], int], reported: str) -> None:
    with pytest.raises(MachineError, match=reported):
        list(LocalEngine(2).each(function, None, range(20)))


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


STOPPED = """
import signal
import time
from pipelines.preparing.engines.local import LocalEngine
from workbench.cli.app import reported

def handler(number, frame):
    print("interrupted", flush=True)
    raise KeyboardInterrupt

def work(seconds, item):
    print("working", flush=True)
    time.sleep(seconds)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, handler)
    with reported():
        print("begin", flush=True)
        list(LocalEngine(2).each(work, SECONDS, range(100)))
"""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Callable[[float], subprocess.Popen[str]]]:
    """Starts a process with workers, whose items take so many seconds, in a group of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(seconds: float) -> subprocess.Popen[str]:
        (tmp_path / "stopped.py").write_text(STOPPED.replace("SECONDS", str(seconds)))
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        command = [sys.executable, str(tmp_path / "stopped.py")]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, stdout=pipe, stderr=pipe, env=environment, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def wait_for_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    while found := process.stdout.readline():
        if found.strip() == line:
            return
    pytest.fail(process.communicate()[1])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_a_signal_while_workers_start_is_reported_once(group: Any, number: signal.Signals, code: int) -> None:
    """Python's resource tracker belongs to the group too."""
    process = group(0.01)
    wait_for_line(process, "begin")
    while not psutil.Process(process.pid).children():
        time.sleep(0.001)
    time.sleep(0.05)  # a moment in which interpreters start; whichever it is, the outcome is the same
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert said.startswith("error: stopped")
    assert said.count("\n") == 1, said


def test_a_second_interruption_does_not_wait_for_the_workers(group: Any) -> None:
    process = group(3600)
    wait_for_line(process, "working")
    os.killpg(process.pid, signal.SIGINT)
    wait_for_line(process, "interrupted")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)  # what is under way is finished
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said


def test_a_signal_is_held_back_until_the_process_is_known() -> None:
    known = []
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def start() -> None:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            known.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert known
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked


class OwnError(Exception):
    """Cannot be unpickled: it is built from two values, and pickled with one."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one + two)


def own_error(context: None, number: int) -> int:
    raise OwnError(number, 1)


def noted(context: None, number: int) -> int:
    if number < 4:
        return number
    error = ValueError(f"item {number}")
    error.add_note("a note")
    raise error


def test_the_first_items_error_comes_with_its_notes_and_its_traceback() -> None:
    done = []
    with pytest.raises(ValueError, match="item 4") as raised:
        done.extend(LocalEngine(2).each(noted, None, range(20)))
    assert raised.value.__notes__ == ["a note"]
    assert "in noted" in str(raised.value.__cause__)
    with pytest.raises(RuntimeError, match="OwnError: 1"):
        list(LocalEngine(2).each(own_error, None, range(20)))


def double(context: int, number: int) -> int:
    return context * number


@pytest.mark.parametrize("items", [0, 1, 2, 3, 4, 5, 50])
def test_values_come_in_order(items: int) -> None:
    assert list(LocalEngine(2).each(double, 2, range(items))) == [2 * number for number in range(items)]


ABANDONED = """
import sys
from pipelines.preparing.engines.local import LocalEngine

def double(context, number):
    return 2 * number

if __name__ == "__main__":
    values = LocalEngine(2).each(double, None, range(100))
    sys.kept = values  # something that outlives the program's own names
    print(next(values))
"""


def test_values_that_nobody_asks_for_any_more_do_not_keep_the_process(tmp_path: Path) -> None:
    (tmp_path / "abandoned.py").write_text(ABANDONED)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, str(tmp_path / "abandoned.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr

"""Processor time of the tests: a budget for each case, and at the end what the run took and its dearest cases.

What counts is the call of a test: its own work, and that of the processes that it starts. Fixtures and imports are paid
by whoever comes first, and do not count. `--budget SECONDS` fails a case above them.
"""

from __future__ import annotations

import importlib.machinery
import os
import statistics
import time
from collections.abc import Generator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

SUITES = ("slow", "scale", "docs", "simulator", "systems")
"""What the gate leaves to runs of their own: `make test-SUITE`, of the simulator `make test-gpu`."""
FREE = (*SUITES, "long")
"""Marks of cases that may take more than the budget."""
SHOWN = 10
CLEAR = 3.0
"""A case fails when it takes so many times its budget; next to other processes the same case takes more."""
ENTRIES, FILLED_S = 40_000, 0.012
"""A dictionary's size, and the seconds in which the processor for which the budget is meant fills it. Other processes
slow this down as they do tests: they take the memory's time and the caches."""
_TICKS = os.sysconf("SC_CLK_TCK")
_imported = 0.0


def _timed(execute: Any) -> Any:
    """The same, and how long it took is added to what imports take."""
    inside = False

    def measured(*arguments: Any) -> None:
        nonlocal inside
        global _imported
        if inside:  # a module that imports others
            execute(*arguments)
            return
        inside, start = True, time.process_time()
        try:
            execute(*arguments)
        finally:
            inside = False
            _imported += time.process_time() - start

    return measured


def processor_seconds() -> float:
    """Of this process and of all that it has started, of those that still run as far as the system counts them."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + _of_children(os.getpid())


def _of_children(process: int) -> float:
    """Of the running children of a process's main thread, and of theirs."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended, or this system has no such file
        return 0.0
    return sum(_of_process(int(child)) + _of_children(int(child)) for child in children)


def _of_process(process: int) -> float:
    try:
        numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]
    except OSError:
        return 0.0
    if process == forkserver._forkserver._forkserver_pid:  # it imports once for all whom it forks
        numbers = numbers[2:]
    return sum(map(int, numbers)) / _TICKS


def pace() -> float:
    """How many times as long as meant this processor needs at the moment; 1 where it is faster."""
    taken = []
    for _ in range(5):
        start = time.process_time()
        _ = {str(number): [number] for number in range(ENTRIES)}
        taken.append(time.process_time() - start)
    return max(1.0, statistics.median(taken) / FILLED_S)


class ProcessorTime:
    """The plugin. With pytest-xdist each worker measures, and the one that they report to prints."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.seconds: dict[str, float] = {}
        self.workers: list[tuple[float, float]] = []  # of a worker: in all, and until it had collected
        self.collected = 0.0

    def pytest_sessionstart(self) -> None:
        importlib.machinery.SourceFileLoader.exec_module = _timed(importlib.machinery.SourceFileLoader.exec_module)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self.collected = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        before = processor_seconds() - _imported
        try:
            return (yield)
        finally:
            item.stash[TAKEN] = max(0.0, processor_seconds() - _imported - before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if call.when == "call":
            report.processor_seconds = taken = item.stash.get(TAKEN, 0.0)
            free = not self.budget or any(item.get_closest_marker(mark) for mark in FREE)
            allowed = self.budget * CLEAR
            if report.passed and not free and taken > allowed and taken > allowed * (slow := pace()):
                report.outcome = "failed"
                report.longrepr = self.advice(taken, slow)
        return report

    def advice(self, taken: float, slow: float) -> str:
        allowed = f"{self.budget:g}" + (f" x {slow:.1f}, as this processor is slower" * (slow > 1.05))
        return (
            f"{taken:.1f} s of processor time; allowed in `make test`: {allowed}. Make the case smaller, move what it "
            f"shares with others into a fixture of the module, or mark it: {', '.join(SUITES)} (CONTRIBUTING.md)"
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.seconds[report.nodeid] = getattr(report, "processor_seconds", 0.0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["processor_seconds"] = (processor_seconds(), self.collected)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.workers.append(getattr(node, "workeroutput", {}).get("processor_seconds", (0.0, 0.0)))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.seconds:
            return
        collecting = sum(collected for _, collected in self.workers) or self.collected
        everything = sum(every for every, _ in self.workers) or processor_seconds()
        terminalreporter.section("processor time")
        terminalreporter.write_line(
            f"{everything:7.1f} s in all: {collecting:.1f} to collect, {sum(self.seconds.values()):.1f} in the calls "
            f"of {len(self.seconds)} cases, the rest in fixtures, imports and processes; the dearest cases:"
        )
        for name in sorted(self.seconds, key=lambda name: -self.seconds[name])[:SHOWN]:
            terminalreporter.write_line(f"{self.seconds[name]:7.1f} s {name}")


TAKEN = pytest.StashKey[float]()

"""Benchmarks of speed take turns, keep waiting threads asleep, refuse rounds that scatter, and have one clock."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.rounds import clock_of, compared, medians

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {"benchmarks/rounds.py", "benchmarks/making.py"}
"""The contestants of the last one are processes, which measure themselves."""


def test_contestants_take_turns_and_a_first_round_is_not_counted() -> None:
    turns: list[str] = []
    moments = iter([0, 100, 100, 100, 0, 2, 2, 3, 0, 4, 4, 5, 0, 3, 3, 4])
    works = {"ours": lambda: turns.append("ours"), "theirs": lambda: turns.append("theirs")}
    assert compared(works, 3, lambda: float(next(moments))) == {"ours": 3.0, "theirs": 1.0}
    assert turns == ["ours", "theirs"] * 4


def test_rounds_that_scatter_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    found = medians({"ours": [1.0, 1.2, 3.1], "theirs": [2.0, 4.0, 6.0]})
    assert math.isnan(found["ours"])
    assert found["theirs"] == 4.0
    assert "refused: the rounds of ours scatter 3.1 times, 3 times are allowed" in capsys.readouterr().out


def test_one_thread_is_timed_by_the_processor() -> None:
    assert clock_of(threads=1) is time.process_time
    assert clock_of(threads=2) is time.perf_counter


def test_waiting_threads_sleep_before_torch_is_imported() -> None:
    code = "import os, sys, benchmarks; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["PASSIVE", "False"]


def test_no_benchmark_has_a_clock_of_its_own() -> None:
    files = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in (ROOT / "benchmarks").rglob("*.py")}
    clocks = ("perf_counter", "process_time")
    assert {name for name, code in files.items() if any(clock in code for clock in clocks)} <= ELSEWHERE

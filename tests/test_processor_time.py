"""The budget of processor time of a case in `make test`, and the suites that its exceptions are in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import processor_time
from tests.conftest import pytest_collection_modifyitems
from tests.processor_time import CLEAR, SUITES, TAKEN, ProcessorTime, processor_seconds

ROOT = Path(__file__).resolve().parent.parent
SPIN = "import time\nwhile time.process_time() < {seconds}: pass"


def outcome(taken: float, budget: float = 2.0, mark: str = "") -> Any:
    """The report of a case that passed and took so many seconds."""
    item: Any = SimpleNamespace(stash={TAKEN: taken}, get_closest_marker=lambda name: name if name == mark else None)
    hook = ProcessorTime(budget).pytest_runtest_makereport(item, SimpleNamespace(when="call"))  # type: ignore
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(SimpleNamespace(passed=True, outcome="passed", longrepr=None))
    return ended.value.value


def test_a_case_above_the_budget_fails_unless_it_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "pace", lambda: 1.0)
    assert outcome(1.9).outcome == "passed"
    assert outcome(2.0 * CLEAR - 0.1).outcome == "passed"
    failed = outcome(6.1)
    assert failed.outcome == "failed"
    assert "6.1 s of processor time; allowed in `make test`: 2. Make the case smaller" in failed.longrepr
    assert [mark for mark in (*SUITES, "long") if outcome(9.0, mark=mark).outcome == "failed"] == []
    assert outcome(9.0, budget=0.0).outcome == "passed"


def test_a_slower_processor_has_a_larger_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "pace", lambda: 1.5)
    assert outcome(8.9).outcome == "passed"
    assert "allowed in `make test`: 2 x 1.5, as this processor is slower" in outcome(9.1).longrepr


def test_processes_count_while_they_run_and_when_they_have_ended() -> None:
    before = processor_seconds()
    subprocess.run([sys.executable, "-S", "-c", SPIN.format(seconds=0.15)], check=True)
    ended = processor_seconds()
    assert ended - before >= 0.1  # the system counts in hundredths
    with subprocess.Popen([sys.executable, "-S", "-c", SPIN.format(seconds=30)]) as process:
        while processor_seconds() - ended < 0.1:
            assert process.poll() is None
        process.kill()


def test_imports_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "costly_to_import.py").write_text(
        "import time\nend = time.process_time() + 0.1\n" + SPIN.format(seconds="end")
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = processor_time._imported
    import costly_to_import  # noqa: F401

    assert processor_time._imported - before >= 0.1


def test_the_gate_leaves_out_what_other_targets_run() -> None:
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    assert f'-m "not ({" or ".join(SUITES)})"' in makefile
    assert re.search(r"pytest \$\(GATE\) --budget \d", makefile)
    targets = ["test-gpu" if suite == "simulator" else f"test-{suite}" for suite in SUITES]
    assert [target for target in targets if not re.search(rf"^[^#\n]*\b{target}\b.*: ", makefile, re.M)] == []
    assert [target for target in ("lint", "test", *targets) if not re.search(rf"\b{target}\b", ci)] == []


def test_a_share_has_the_first_case_and_every_nth_after_it() -> None:
    left: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    config: Any = SimpleNamespace(getoption=lambda name: 3, hook=hook)
    cases: list[Any] = [*range(7)]
    pytest_collection_modifyitems(config, cases)
    assert cases == [0, 3, 6]
    assert left == [1, 2, 4, 5]

"""What a run takes along: the code of panels next to what it was trained with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.components.trust import allow
from workbench.report.panels import find_panel
from workbench.report.run import Run
from workbench.runs.folder import keep_panels

FILES = {
    "their_panel.py": "from their_words import WORDS\n\n\ndef shown(run):\n    return f'<p>{WORDS} {run.name}</p>'\n",
    "their_words.py": "WORDS = 'this is'\n",
}


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a panel that imports a helper, and a run elsewhere."""
    (tmp_path / "here").mkdir()
    (tmp_path / "run").mkdir()
    for name, text in FILES.items():
        (tmp_path / "here" / name).write_text(text)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("workbench.components.trust._trusted", set())
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_a_panels_code_goes_along_with_what_it_imports(theirs: Path) -> None:
    panel, run = ["their_panel:shown"], theirs / "run"
    keep_panels(run, panel)
    assert not (run / "code").exists(), "nobody said that it may be run"
    allow(panel, Path.cwd(), "the panel", trust=True)
    keep_panels(run, panel)
    assert {path.name: path.read_text() for path in (run / "code").iterdir()} == FILES
    for name in FILES:
        Path(name).unlink()
    allow(panel, run, "the run", trust=True)
    assert find_panel(*panel)(Run("ours", run, {})) == "<p>this is ours</p>"


def test_code_that_the_run_was_trained_with_stays(theirs: Path) -> None:
    code = theirs / "run" / "code" / "their_words.py"
    code.parent.mkdir()
    code.write_text("WORDS = 'that was'\n")
    allow(["their_panel:shown"], Path.cwd(), "the panel", trust=True)
    keep_panels(theirs / "run", ["their_panel:shown"])
    assert code.read_text() == "WORDS = 'that was'\n"
    assert code.with_name("their_panel.py").is_file()

"""Commands that know no ranks are refused on several of them, before torch is loaded; verdicts are printed once."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import training
from workbench.cli.app import COMMANDS, ON_RANKS, app, check_ranks
from workbench.core.errors import WorkbenchError
from workbench.training import verify_resume

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node", "MASTER_PORT": "29500"}
LAUNCHERS = {
    "torchrun": TORCHRUN,
    "srun": {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_NODELIST": "n1"},
    "mpirun": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_commands_without_ranks_are_refused(launcher: str) -> None:
    for name in COMMANDS.keys() - ON_RANKS.keys():
        with pytest.raises(WorkbenchError, match=f"'workbench {name}' runs in one process, .* has started 4 of it"):
            check_ranks(name, ["x", "--part", "1/4"], LAUNCHERS[launcher])
        check_ranks(name, ["--help"], LAUNCHERS[launcher])
        check_ranks(name, [], {})
    for name in ("pretrain", "verify-resume", "finetune", "evaluate"):
        check_ranks(name, ["x"], LAUNCHERS[launcher])


def test_work_that_each_process_has_a_part_of_is_not_refused() -> None:
    with pytest.raises(WorkbenchError, match="or give each process its own --part"):
        check_ranks("prepare", ["text", "notes", "--output", "x"], TORCHRUN)
    for part in (["--part", "2/4"], ["--part=2/4"]):
        check_ranks("prepare", ["text", "notes", "--output", "x", *part], TORCHRUN)


def test_the_command_line_asks_before_it_imports_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, **TORCHRUN})
    monkeypatch.delitem(sys.modules, "workbench.cli.report", raising=False)
    with pytest.raises(WorkbenchError, match="'workbench report' runs in one process"):
        app.run(["report", "runs/x"], "workbench")
    assert "workbench.cli.report" not in sys.modules


@pytest.mark.parametrize(("rank", "code"), [("0", 1), ("1", 0)])
def test_the_first_rank_prints_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, rank: str, code: int
) -> None:
    verdict = verify_resume.ResumeVerdict(4, 2, 17, [(3, "mlm/loss", 1.0, 2.0)], [], 0.0, 0, 0)

    def verified(*_: Any) -> verify_resume.ResumeVerdict:
        return verdict

    monkeypatch.setattr(verify_resume, "verify_resume", verified)
    monkeypatch.setattr(training, "checked_recipe", lambda *_, **__: (None, tmp_path))
    monkeypatch.setattr(training, "check_launch", lambda _: None)
    monkeypatch.setattr(training, "places_named", lambda _: nullcontext())
    monkeypatch.setattr(os, "environ", {**os.environ, **TORCHRUN, "RANK": rank})
    with pytest.raises(SystemExit) if code else nullcontext():
        _called(tmp_path)
    assert ("different" in capsys.readouterr().out) == (rank == "0")


def _called(folder: Path) -> None:
    import typer

    try:
        training.verify_resume("tiny", run=folder)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)

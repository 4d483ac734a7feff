"""Downstream tasks are found by their folder or by import path; their options are the command's."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.cli.evaluation import evaluate, finetune
from workbench.components.trust import import_named
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.comparison import compare
from workbench.evaluation.options import MeasuringOptions, Scoring, Tuning
from workbench.evaluation.scoring.evaluation import evaluate as evaluated
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.task_finder import find_task
from workbench.evaluation.task_modules import task_modules, trained_tasks

THEIRS = '''
from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import Scoring, Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.core.options.bounds import Share


@dataclass(frozen=True, kw_only=True)
class OwnScoring(Scoring):
    """What their task measures."""

    threshold: Annotated[Share, typer.Option(help="Above it: yes.")] = 0.5


class Sentiment(DownstreamTask[Tuning, OwnScoring]):
    tuning, scoring = Tuning, OwnScoring
'''


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_task.py").write_text(THEIRS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "their_task:Sentiment"
    sys.modules.pop("their_task", None)


def test_every_folder_is_a_task_of_its_name() -> None:
    assert {"facts", "entity-typing", "vqa", "retrieval"} <= set(task_modules())
    for name in task_modules():
        task = find_task(name)
        assert task.name == name
        assert issubclass(task.scoring, MeasuringOptions)
        assert task.tuning is None or issubclass(task.tuning, Tuning)


def test_those_that_train_are_reported_without_being_imported(capsys: pytest.CaptureFixture[str]) -> None:
    """What the source is read for is what the classes say."""
    by_class = {name for name in task_modules() if find_task(name).tuning is not None}
    assert set(trained_tasks()) == by_class < set(task_modules())
    for commands, listed in ((finetune, by_class), (evaluate, set(task_modules()))):
        with pytest.raises(SystemExit):
            commands.run(["--help"], "workbench COMMAND")
        words = {
            line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ") and line[2] != " "
        }
        assert words == listed


@pytest.mark.parametrize("name", task_modules())
def test_its_panels_are_there(name: str) -> None:
    """A report is about runs."""
    task = find_task(name)
    assert task.panels or not issubclass(task.scoring, Scoring)
    for panel in task.panels:
        assert callable(import_named("report panel", panel))


def test_a_task_elsewhere_runs_when_trusted(theirs: str) -> None:
    with pytest.raises(WorkbenchError, match="add --trust"):
        find_task(theirs)
    assert "their_task" not in sys.modules
    assert find_task(theirs, trust=True).name == "sentiment"


def test_its_options_have_bounds_and_stand_in_the_help(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WorkbenchError, match="add --trust"):
        evaluate.run([theirs, "--help"], "workbench evaluate")
    with pytest.raises(SystemExit):
        evaluate.run([theirs, "--trust", "--help"], "workbench evaluate")
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("What their task measures.", "--threshold", "Above it", "--limit"))
    with pytest.raises(WorkbenchError, match=r"--threshold = 1\.5; allowed: a number from 0, at most 1"):
        evaluate.run([theirs, "a/run", "a/corpus", "--trust", "--threshold", "1.5"], "workbench evaluate")


GUESSES = """
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.options import Scoring
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.metrics.tallies import Tally
from workbench.objectives.mlm import Mlm


class Guesses(DownstreamTask):
    scoring, objective = Scoring, Mlm

    def score(self, run, corpus, scoring):
        tally = Tally.share([1, 0, 1, 1])
        lines = [{"key": str(n)} for n in range(4)]
        return Result(self.name, {"right": VALUE}, {"texts": 4}, predictions=EvaluationItems(lines, {"right": tally}))
"""


def test_whose_code_has_measured_is_recorded_compared_and_named_where_it_fails(
    pretrained: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run = tmp_path / "run"
    shutil.copytree(pretrained, run)

    def measured(code: str) -> Result:
        sys.modules.pop("their_guesses", None)
        (tmp_path / "their_guesses.py").write_text(code)
        importlib.invalidate_caches()
        task = find_task("their_guesses:Guesses", trust=True)
        return evaluated(task, Scoring(run=run, corpus=texts / "texts"))

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions of one second look alike
    one = measured(GUESSES.replace("VALUE", "tally.whole"))
    assert one.inputs["read"]["task"].keys() == {"their_guesses.py"}
    assert one.intervals["right"]["by"] == "Wilson"
    other = measured(GUESSES.replace("VALUE", "0.75"))
    first, second = (each.write(tmp_path / str(place)) for place, each in enumerate((one, other)))
    with pytest.raises(WorkbenchError, match=r"not of one code of the task: 'their_guesses.py \w+' and .*--across"):
        compare([str(first), str(second)], samples=50)
    (found,) = compare([str(first), str(second)], samples=50, across_variants=True)
    assert any(reported.startswith("code of the task: their_guesses.py") for reported in found.reported)
    with pytest.raises(ZeroDivisionError) as caught:
        measured(GUESSES.replace("VALUE", "1 / 0"))
    assert caught.value.__notes__ == ["raised in task their_guesses:Guesses"]
    with pytest.raises(WorkbenchError, match=r"task guesses: Result.predictions: the number 'right' is 0.5, but"):
        measured(GUESSES.replace("VALUE", "0.5"))
    sys.modules.pop("their_guesses", None)


@pytest.mark.parametrize(
    "name",
    [
        "vqaa",
        "workbench.evaluation.scoring.downstream_task:Setup",
        "workbench.evaluation.scoring.downstream_task:DownstreamTask",
    ],
)
def test_what_is_no_task_is_refused(name: str) -> None:
    with pytest.raises(WorkbenchError, match=r"unknown task 'vqaa'.*'vqa'|is no downstream task; allowed: a class"):
        find_task(name)


def test_a_task_for_evaluation_alone_trains_nothing() -> None:
    with pytest.raises(WorkbenchError, match="nothing to train; evaluate a pretrained run: workbench evaluate facts"):
        finetune.run(["facts", "a/run", "a/corpus"], "workbench finetune")

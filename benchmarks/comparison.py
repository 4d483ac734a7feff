"""Comparisons of systems at one budget: shared options, the removal of weights, tables and the page of runs.

A comparison pretrains and fine-tunes each of its systems under a `Budget`, and writes its tables with `publish`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commands import call
from benchmarks.result_tables import markdown
from workbench.runs.names import BEST, CHECKPOINTS

Rows = list[list[str]]


@dataclass(frozen=True)
class Budget:
    """What is alike for all systems: steps of pretraining, how long fine-tuning is, seeds (from 0 on), the precision.

    `tuning` counts epochs or steps; the comparison says which.
    """

    steps: int
    tuning: float
    seeds: int
    precision: str


def arguments(description: str | None, systems: Iterable[str], tasks: Iterable[str]) -> argparse.ArgumentParser:
    """The options of a comparison but for the budget's."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--only", nargs="*", choices=[*systems], default=[*systems], help="systems; default: all")
    parser.add_argument("--tasks", nargs="*", choices=[*tasks], default=[*tasks], help="sets; default: all")
    return parser


def read_budget(parser: argparse.ArgumentParser, default: Budget, unit: str) -> tuple[argparse.Namespace, Budget]:
    """The options given, with the budget's own.

    Args:
        unit: what `Budget.tuning` counts, and the name of its option: epochs, tuning-steps.
    """
    parser.add_argument("--seeds", type=int, default=default.seeds, help="so many, from 0 on")
    parser.add_argument("--steps", type=int, default=default.steps, help="of pretraining")
    kind = type(default.tuning)
    parser.add_argument(f"--{unit}", dest="tuning", type=kind, default=default.tuning, help="of fine-tuning")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of all training")
    options = parser.parse_args()
    os.environ.setdefault("WORKBENCH_LOG", "WARNING")
    options.data, options.output = options.data.resolve(), options.output.resolve()
    return options, Budget(options.steps, options.tuning, options.seeds, options.precision)


def training(steps: int, batch: int, lr: str) -> tuple[str, ...]:
    """Overrides of the loop that are alike for all systems of a comparison."""
    return (
        f"train.max_steps={steps}",
        f"train.global_batch_size={batch}",
        f"train.micro_batch_size={batch}",
        f"train.lr={lr}",
        "train.optimizer={optimizer: adamw, weight_decay: 0.01}",
        f"train.lr_schedule={{lr_schedule: linear, warmup_steps: {steps // 10}}}",
        "train.clip_norm=1.0",
        "train.log_every=10",
        "train.save_every=0",
        "train.num_workers=0",
    )


def drop_weights(run: Path) -> None:
    """Remove the checkpoints of a run that is scored: there are dozens of runs, and what was scored stands in each."""
    for weights in (run / CHECKPOINTS, run / BEST):
        shutil.rmtree(weights, ignore_errors=True)


def publish(tables: dict[str, Rows], words: str, runs: Iterable[Path], output: Path, title: str) -> None:
    """Tables as Markdown (OUTPUT/results.md, and printed), and OUTPUT/report.html: the page of all runs.

    Args:
        tables: head and rows, by the titles of their chapters.
        words: what stands above the first table.
        runs: those not there are left out.
    """
    written = "\n\n".join(f"## {name}\n\n{markdown(rows)}" for name, rows in tables.items()) + "\n"
    (output / "results.md").write_text(written, encoding="utf-8")
    print(written)
    chapters = [
        {"title": name, "text": [] if number else [words], "head": rows[0], "rows": rows[1:]}
        for number, (name, rows) in enumerate(tables.items())
    ]
    opening = output / "opening.json"
    opening.write_text(json.dumps(chapters), encoding="utf-8")
    finished = [str(run) for run in runs if (run / "recipe.yaml").exists()]
    call("report", *finished, "--opening", str(opening), "--output", str(output / "report.html"), "--title", title)

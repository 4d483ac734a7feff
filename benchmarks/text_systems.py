"""The tiny size of every text system on real text: what it learns in 300 steps, exact resume, two ranks.

    python -m benchmarks.text_systems --data data --output systems [--only bert xlnet]

`data` is a folder with the raw corpora. They are prepared by the ordinary
commands, which are printed; what is there already is not made again. For each system

- `workbench pretrain NAME-tiny`, and its held-out losses at the end, each beside the unigram entropy of what the
  objective predicts: the cross entropy of the held-out labels under the frequencies of the labels in training;
- `workbench verify-resume`: a run with a stop in its middle, compared bit for bit;
- sixty steps on one rank and on two (gloo): the largest relative difference of a loss.

The table is Markdown, on the standard output and in `results.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plays import write_dialogues
from benchmarks.real_data import call
from workbench.recipe.reading import load_recipe, shipped
from workbench.recipe.sizes import sizes_of
from workbench.recipe.spec import Recipe
from workbench.runs.metrics import read_metrics
from workbench.tasks.building import tasks_of
from workbench.tasks.feed import MicroBatches, MicroBatchId
from workbench.tasks.task import labels as names_of
from workbench.text.tokenizer import Tokenizer
from workbench.training.held_out import HELD_OUT_SPLIT, PREFIX
from workbench.training.readers import held_out_pass, reader_of

STEPS_OF_RANKS, STEPS_OF_RESUME, BATCHES_COUNTED = 60, 6, 100
VOCABULARY = "1000"
FOLDERS = {"xlm": "multi30k"}
"""Systems that read other corpora than the rest, and where these lie among them."""


def systems() -> list[str]:
    """The text systems that have a tiny size."""
    return [name for name, path in shipped().items() if path.parent.name == "text" and "tiny" in sizes_of(path)]


def prepare(data: Path, corpora: Path) -> None:
    """The corpora that the recipes name, with held-out parts, and one tokenizer."""
    corpora.mkdir(parents=True, exist_ok=True)
    dialogues = write_dialogues(data / "gutenberg/books.jsonl", corpora / "dialogues.jsonl")
    text = str(corpora / "text")
    commands = [
        ("text", "text", str(data / "wikitext2/valid.txt"), "--split", "held-out=0.1"),
        ("tokenizer.json", "tokenizer", text, "--vocab-size", VOCABULARY),
        ("similar-words.safetensors", "similar-words", text, "--tokenizer", str(corpora / "tokenizer.json")),
        ("linked", "text", str(data / "wiki_linked/docs_train.jsonl"), "--split", "held-out=0.2"),
        ("linked-phrases", "phrases", str(corpora / "linked")),
        ("linked-phrases-held-out", "phrases", str(corpora / "linked-held-out")),
        ("dialogues", "text", str(dialogues), "--split", "held-out=0.1"),
    ]
    for name, *command in [*commands, *multilingual(data / "multi30k", FOLDERS["xlm"], corpora)]:
        if not (corpora / name).exists():
            call("prepare", *command, "--output", str(corpora / name))


def multilingual(data: Path, folder: str, corpora: Path) -> Iterator[tuple[str, ...]]:
    """The preparation of texts in four languages, of their translations, and of a tokenizer of all."""
    languages = ("cs", "de", "en", "fr")
    for part, end in (("train", ""), ("val", "-held-out")):
        for language in languages:
            told = ("--language", language, "--option", "document=line")
            yield f"{folder}/{language}{end}", "text", str(data / f"{part}.{language}"), *told
        yield f"{folder}/pairs{end}", "text", *(str(data / f"{part}.{language}") for language in languages)
    texts = (str(corpora / folder / language) for language in languages)
    told = ("--kind", "bpe", "--no-lowercase", "--size-exponent", "0.5", "--vocab-size", VOCABULARY)
    yield f"{folder}/tokenizer.json", "tokenizer", *texts, *told


def held_out(recipe: Recipe) -> list[str]:
    """Overrides that name the held-out part beside each task's corpora."""
    found = []
    for task, spec in recipe.tasks.items():
        parts = [f"{place}-held-out" for place in spec.corpora]
        there = [part for part in parts if Path(part).is_dir()]
        found += [f"tasks.{task}.held_out=[{','.join(there)}]"] if there else []
    return found


def unigram_entropies(recipe: Recipe) -> dict[str, float]:
    """Cross entropy (nats) of the held-out labels under the frequencies of training labels, of objectives that predict
    tokens; every token counts once more than it is seen."""
    tokenizer = Tokenizer.load(recipe.tokenizer) if recipe.tokenizer else None
    tasks = tasks_of(recipe, tokenizer)
    readers = {name: reader_of(recipe, task) for name, task in tasks.items()}
    seen = _labels(MicroBatches(tasks, readers), dict.fromkeys(tasks, BATCHES_COUNTED))
    passes = {name: held_out_pass(recipe, task) for name, task in tasks.items() if task.spec.held_out}
    asked = _labels(MicroBatches(tasks, passes, HELD_OUT_SPLIT), {name: each.steps for name, each in passes.items()})
    assert tokenizer is not None
    found = {}
    for name, labels in asked.items():
        total = sum(seen[name].values()) + tokenizer.vocab_size
        bits = sum(count * math.log((seen[name][label] + 1) / total) for label, count in labels.items())
        found[name] = -bits / sum(labels.values())
    return found


def _labels(batches: MicroBatches, numbers: dict[str, int]) -> dict[str, Counter[int]]:
    """How often each token is a label, by objective."""
    found: dict[str, Counter[int]] = {}
    called = names_of(batches.tasks)
    for task, steps in numbers.items():
        predicting = [p.name for p in batches.tasks[task].objectives if p.objective.predicts == "tokens"]
        for number in range(steps):
            micro = batches.micro_batch(MicroBatchId(task, number, 0))
            for view in micro.views.values() if micro else ():
                for name in predicting:
                    labels = view.targets.get(name, {}).get("labels")
                    if labels is not None:
                        ids, counts = np.unique(np.asarray(labels), return_counts=True)
                        found.setdefault(called[task, name], Counter()).update(
                            dict(zip(ids.tolist(), counts.tolist(), strict=True))
                        )
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


def measure(system: str, corpora: Path, folder: Path) -> dict[str, Any]:
    """Train, compare, count: a row of the table."""
    name = f"{system}-tiny"
    overrides = [f"vars.data={corpora / FOLDERS.get(system, '')}"]
    overrides += [*held_out(load_recipe(name, overrides))]
    recipe = load_recipe(name, overrides)
    run = folder / name
    call("pretrain", name, *overrides, f"train.evaluate_every={recipe.train.max_steps}", "-o", str(run))
    records = read_metrics(run)
    last = {key.removeprefix(PREFIX): value for record in records for key, value in record.items() if PREFIX in key}
    entropies = unigram_entropies(recipe)
    call("verify-resume", name, *overrides, "--steps", str(STEPS_OF_RESUME), "-o", str(folder / f"{name}-resume"))
    return {
        "system": system,
        "steps": recipe.train.max_steps,
        "seconds": max(record.get("seconds", 0) for record in records),
        "losses": {key.removesuffix("/loss"): value for key, value in last.items() if _is_loss(key)},
        "unigram": entropies,
        "resume": "equal",  # `call` ends the benchmark where it is not
        "ranks": ranks_differ(name, overrides, folder),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| system | steps | seconds | held-out loss (unigram entropy) | resume | 2 ranks |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        told = []
        for name, loss in row["losses"].items():
            entropy = row["unigram"].get(name)
            told.append(f"{name} {loss:.2f}" + (f" ({entropy:.2f})" if entropy else ""))
        cells = (
            row["system"],
            row["steps"],
            f"{row['seconds']:.0f}",
            ", ".join(told),
            row["resume"],
            f"{row['ranks']:.0e}",
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--only", nargs="*", default=[], help="systems to measure; default: all that aren't yet")
    options = parser.parse_args()
    folder = options.output.resolve()
    corpora, results = folder / "corpora", folder / "results.json"
    prepare(options.data.resolve(), corpora)
    rows = {row["system"]: row for row in (json.loads(results.read_text()) if results.exists() else [])}
    for system in options.only or [name for name in systems() if name not in rows]:
        rows[system] = measure(system, corpora, folder / "runs")
        results.write_text(json.dumps(list(rows.values()), indent=2))
    told = table(sorted(rows.values(), key=lambda row: str(row["system"])))
    (folder / "results.md").write_text(told + "\n")
    print(told)


if __name__ == "__main__":
    main()

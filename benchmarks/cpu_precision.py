"""bfloat16 against float32 on a CPU: the time of a step by width, and the losses of whole runs.

    python -m benchmarks.cpu_precision
    python -m benchmarks.cpu_precision --losses OUTPUT

A step is that of `benchmarks.mlm_step`: BERT of 4 layers on 8 documents of up to 128 tokens, vocabulary 8,192. Both
numbers are processor time of one thread, in turns (`benchmarks.rounds`).

`--losses` trains three recipes for 300 steps in both, with the same seed and so the same batches, masks and first
weights, on the small files of the demo. Their streams are as wide as `--width`. The table has the mean losses of the
first 20 and of the last 50 steps, objectives added, and the largest difference of two means of 20 steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import mean

import torch

from benchmarks import mlm_step
from benchmarks.commands import call
from benchmarks.rounds import compared
from workbench.core.processes.malloc import keep_freed_memory

LAYERS, HEAD, VOCABULARY, LENGTH, BATCH = 4, 32, 8192, 128, 8
PRECISIONS = ("float32", "bfloat16")
RECIPES = {
    "tiny-text": ["model.streams.text.hidden_size={}"],
    "tiny-knowledge": ["model.streams.text.hidden_size={}"],
    "tiny-joint": ["model.streams.text.hidden_size={}", "model.streams.image.hidden_size={}"],
}
PREPARED = (
    "triples graph.tsv --entities entities.jsonl --relations relations.jsonl --output corpora/graph",
    "text notes.txt --output corpora/text",
    "link corpora/text --graph corpora/graph --output corpora/wiki-linked",
    "image-text captions.jsonl --images photos --output corpora/pairs",
    "tokenizer corpora/text corpora/graph --output corpora/tokenizer.json --vocab-size 400",
)
STEPS, WINDOW = 300, 20


def speeds(widths: list[int], rounds: int, steps: int) -> None:
    """Print the seconds of a step by width."""
    print(f"{torch.cpu.get_capabilities()['cpu_name']}; a step of {BATCH} documents of up to {LENGTH} tokens")
    print("| width | float32, ms | bfloat16, ms | ratio |\n|---|---|---|---|")
    for width in widths:
        name = str(width)
        mlm_step.SIZES[name] = (width, LAYERS, width // HEAD, VOCABULARY)
        options = argparse.Namespace(size=name, batch=BATCH, length=LENGTH, steps=steps)
        documents = mlm_step.batches(options)["padded"][:steps]
        works = {}
        for precision in PRECISIONS:
            torch.manual_seed(0)
            step = mlm_step.ours(name, "cpu", precision == "bfloat16")
            works[precision] = partial(run, step, documents)
        found = compared(works, rounds)
        single, half = (1000 * found[precision] / steps for precision in PRECISIONS)
        print(f"| {width} | {single:.1f} | {half:.1f} | {single / half:.2f} |", flush=True)


def run(step: mlm_step.Step, documents: list[mlm_step.Documents]) -> None:
    for some in documents:
        step(some)


def losses(output: Path, width: int) -> None:
    """Print the losses of the recipes by step, in both precisions."""
    output.mkdir(parents=True, exist_ok=True)
    prepare(output)
    print("| recipe | precision | first 20 steps | last 50 | largest difference of two means of 20 steps |")
    print("|---|---|---|---|---|")
    for recipe, streams in RECIPES.items():
        curves = {}
        for precision in PRECISIONS:
            run, wide = f"{recipe}-{precision}", [each.format(width) for each in streams]
            options = [*wide, f"train.max_steps={STEPS}", "train.lr=5e-4", "train.log_every=1"]
            call("pretrain", recipe, *options, f"train.precision={precision}", "--output", run, place=output)
            lines = (output / run / "metrics.jsonl").read_text().splitlines()
            curves[precision] = [sum(v for k, v in json.loads(line).items() if k.endswith("/loss")) for line in lines]
        means = [[mean(curve[i : i + WINDOW]) for i in range(0, STEPS, WINDOW)] for curve in curves.values()]
        widest = max(abs(a - b) for a, b in zip(*means, strict=True))
        for precision, curve in curves.items():
            ends = f"{mean(curve[:WINDOW]):.4f} | {mean(curve[-50:]):.4f}"
            print(f"| {recipe} | {precision} | {ends} | {widest if precision == 'bfloat16' else 0:.4f} |", flush=True)


def prepare(output: Path) -> None:
    """The small files of the demo as the corpora that the recipes read."""
    if (output / "corpora/pairs").exists():
        return
    subprocess.run([sys.executable, "-m", "pipelines.demo", "small-files"], cwd=output, check=True)
    for line in PREPARED:
        call("prepare", *line.split(), place=output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[96, 128, 256, 512, 768])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="steps of a round")
    parser.add_argument("--losses", type=Path, help="train the recipes in this folder instead")
    parser.add_argument("--width", type=int, default=128, help="of the streams of the recipes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    if options.losses is None:
        speeds(options.widths, options.rounds, options.steps)
    else:
        losses(options.losses, options.width)


if __name__ == "__main__":
    main()

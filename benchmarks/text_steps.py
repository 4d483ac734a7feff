"""The training step of each text system next to the Hugging Face class of its size, on natural lengths.

    python -m benchmarks.text_steps --data data --output steps [--only bert gpt-2]

`data` is a folder with the raw corpora gutenberg (its paragraphs are the texts) and multi30k (translations). Every
system is its recipe at one size (4 layers x 256, 4 heads; 4 + 4 layers for encoder-decoders), on the first
micro-batches of the corpus; the peer gets the same tokens, corruption and labels, padded to the longest sequence of
the micro-batch (`benchmarks.text_peers`). Measured is the step on batches that are made: forward, backward, clipping,
AdamW, in float32 on a CPU, bfloat16 on a GPU, dropout 0.1. A round is all micro-batches once; rounds of the two
alternate in one process, the first is not counted; the ratio is of the medians of real tokens per second. Recipes that
pack several texts into a sequence leave the peer next to no padding; with `--unpacked` neither side packs.
Making batches is left out on both sides (`benchmarks.whole_run` has it). Next to other work OMP_WAIT_POLICY=PASSIVE
keeps waiting threads from spinning.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.real_data import call
from benchmarks.text_peers import HEADS, HIDDEN, INNER, LAYERS, PEERS
from workbench.core.files.drafts import write_text
from workbench.core.processes.malloc import keep_freed_memory
from workbench.objectives._token_head import token_table
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.loader import MicroBatches, MicroBatchId
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree, recipe_from_dict
from workbench.sequences.batch import MicroBatch
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of

SIZES = {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_heads": HEADS, "embedding_size": HIDDEN}
BATCHES, BOOKS, SHORTEST, VOCABULARY = 8, 5, 10, "8192"
PACKING = ("across", "full")
Step = Callable[[int], None]


def shaped(value: Any) -> Any:
    """A recipe's tree with the benchmark's sizes wherever it states one."""
    if isinstance(value, list):
        return [shaped(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    found = {key: shaped(inner) for key, inner in value.items()}
    found |= {key: size for key, size in SIZES.items() if isinstance(found.get(key), int)}
    if isinstance(found.get("repeat"), int):
        found["repeat"] = max(1, LAYERS // len(found.get("group", [None])))
    return found


def prepare(data: Path, folder: Path) -> None:
    """One corpus of everything that the systems read, its tokenizer, and what else recipes name."""
    folder.mkdir(parents=True, exist_ok=True)
    raw, corpus, tokenizer = folder / "records.jsonl", str(folder / "texts"), str(folder / "tokenizer.json")
    if not raw.exists():
        records = (json.dumps(record, ensure_ascii=False) for record in _records(data))
        write_text(raw, "\n".join(records))
    commands = [
        ("texts", "text", str(raw)),
        ("tokenizer.json", "tokenizer", corpus, "--vocab-size", VOCABULARY),
        ("similar-words.safetensors", "similar-words", corpus, "--tokenizer", tokenizer),
        ("token-counts.json", "token-counts", corpus, "--tokenizer", tokenizer),
    ]
    for name, *command in commands:
        if not (folder / name).exists():
            call("prepare", *command, "--output", str(folder / name))


def _records(data: Path) -> Iterator[dict[str, Any]]:
    """Paragraphs of at least ten words, each with a sentence in two languages."""
    pairs = [(data / "multi30k" / f"train.{language}").read_text("utf-8").splitlines() for language in ("en", "fr")]
    translations = zip(*pairs, strict=True)
    with (data / "gutenberg/books.jsonl").open(encoding="utf-8") as books:
        for book in itertools.islice(map(json.loads, books), BOOKS):
            for paragraph in book["text"].split("\n\n"):
                if len(paragraph.split()) >= SHORTEST:
                    english, french = next(translations)
                    yield {"text": paragraph, "language": "en", "translations": {"en": english, "fr": french}}


def recipe_of(system: str, options: argparse.Namespace) -> Recipe:
    """The system at the benchmark's size, on the corpus."""
    folder = options.output.resolve()
    tree = shaped(as_tree(load_recipe(system, [f"vars.data={folder}"])))
    tree["tokenizer"] = str(folder / "tokenizer.json")
    for task in tree["tasks"].values():
        task["corpora"] = [str(folder / "texts")]
        task["sequence"] = sequence = task["sequence"] | {"max_length": options.length}
        if options.unpacked and sequence["builder"] == "packed":
            rest = {name: value for name, value in sequence.items() if name not in PACKING}
            task["sequence"] = rest | {"builder": "document"}
    tree["train"] |= {"global_batch_size": options.batch, "micro_batch_size": options.batch, "num_workers": 0}
    return recipe_from_dict(tree, system)


def micro_batches(
    recipe: Recipe, tokenizer: Tokenizer | None, count: int = BATCHES, lane: int = 0
) -> list[tuple[str, MicroBatch]]:
    """The first micro-batches of a lane, each with its task; of several tasks in turn."""
    tasks = tasks_of(recipe, tokenizer)
    batches = MicroBatches(tasks, {name: reader_of(recipe, task) for name, task in tasks.items()})
    found = []
    for number in range(count):
        task = list(tasks)[number % len(tasks)]
        micro = batches.micro_batch(MicroBatchId(task, number // len(tasks), lane))
        assert micro is not None
        found.append((task, micro))
    return found


def stepping(module: nn.Module, loss: Callable[[int], torch.Tensor]) -> Step:
    """A training step of a module on the micro-batch of a number."""
    optimizer = torch.optim.AdamW(module.parameters(), 1e-4, fused=True)

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss(number).backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

    return step


def ours(root: PretrainingModel, micros: list[tuple[str, MicroBatch]], device: torch.device) -> Step:
    """The step of the recipe's own networks and heads."""
    there = [micro.to(device) for _, micro in micros]

    def loss(number: int) -> torch.Tensor:
        micro = there[number]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            outputs = root(micro, list(micro.counts))
        return torch.stack([out.loss / max(micro.counts[name], 1) for name, out in outputs.items()]).sum()

    return stepping(root, loss)


def theirs(system: str, vocabulary: int, micros: list[tuple[str, MicroBatch]], device: torch.device) -> Step:
    """The step of the peer."""
    peer = PEERS[system]
    model = peer.made(vocabulary).to(device)
    inputs = [{name: value.to(device) for name, value in peer.inputs(micro).items()} for _, micro in micros]

    def loss(number: int) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            found: torch.Tensor = model(**inputs[number]).loss
        return found

    return stepping(model, loss)


def rounds(step: Step, options: argparse.Namespace, device: torch.device) -> Iterator[float]:
    """Seconds of a step over all micro-batches, round after round."""
    for _ in range(options.rounds + 1):
        start = time.perf_counter()
        for number in range(BATCHES):
            step(number)
        if device.type == "cuda":
            torch.cuda.synchronize()
        yield (time.perf_counter() - start) / BATCHES


def measure(system: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of both, and their ratio."""
    device = torch.device(options.device)
    recipe = recipe_of(system, options)
    tokenizer = Tokenizer.load(recipe.tokenizer or "")
    micros = micro_batches(recipe, tokenizer)
    tokens = statistics.mean(sum(s.rows for s in next(iter(m.views.values())).streams.values()) for _, m in micros)
    root = make_model(recipe, tasks_of(recipe, tokenizer), tokenizer).to(device).train()
    vocabulary = len(token_table(next(iter(root.networks.values())), "text"))
    both = [ours(root, micros, device), theirs(system, vocabulary, micros, device)]
    seconds = list(zip(*(rounds(step, options, device) for step in both), strict=True))[1:]
    medians = [statistics.median(times) for times in zip(*seconds, strict=True)]
    speeds = [tokens / each for each in medians]
    return {
        "system": system,
        "peer": PEERS[system].model,
        "ours": speeds[0],
        "theirs": speeds[1],
        "ratio": speeds[0] / speeds[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for the corpus and results.json")
    parser.add_argument("--only", nargs="*", default=list(PEERS), choices=list(PEERS), help="systems; default: all")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--unpacked", action="store_true", help="one text a sequence where recipes pack several")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    prepare(options.data.resolve(), options.output.resolve())
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    results = options.output / "results.json"
    for system in options.only:
        row = measure(system, options)
        print("| {system} | {peer} | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f} |".format(**row), flush=True)
        rows = [*(json.loads(results.read_text()) if results.exists() else []), row]
        results.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

"""The training step of each text system next to the Hugging Face class of its size, on natural lengths.

    python -m benchmarks.text_steps --data data --output steps [--only bert gpt-2]

`data` is a folder with the raw corpora gutenberg (its paragraphs are the texts) and multi30k (translations). Every
system is its recipe at one size (4 layers x 256, 4 heads; 4 + 4 layers for encoder-decoders), on the first
micro-batches of the corpus. The peer (`pipelines.gpu.text_peers`) gets sequences that are built, corrupted and labelled
alike, three times:

- `padded`: the same micro-batches, each padded to its longest sequence;
- `grouped`: the sequences of 50 micro-batches sorted by length before they are cut into micro-batches, as
  `group_by_length` of Hugging Face's Trainer does it; a round takes every so many-th of them;
- `grouped + masked`: also with the vocabulary at labelled positions alone, which no class does by itself.

Measured is the step on batches that are made: forward, backward, clipping, a fused AdamW, in float32 on a CPU, bfloat16
on a GPU, dropout 0.1. A round is eight micro-batches. Rounds alternate in one process (`benchmarks.rounds`); a ratio is
of real tokens per second, ours / theirs. Recipes that pack several texts into a sequence leave the peer next to no
padding; with `--unpacked` neither side packs. Making batches is left out on both sides (`benchmarks.whole_run` has it).
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.real_data import call
from benchmarks.rounds import clock_of, compared
from pipelines.gpu.stepping import BATCHES, Step, micro_batches, stepping
from pipelines.gpu.text_peers import HEADS, HIDDEN, INNER, KV_HEADS, LAYERS, PEERS, loss_of
from workbench.core.files.drafts import write_text
from workbench.core.processes.malloc import keep_freed_memory
from workbench.objectives._token_head import token_table
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree, recipe_from_dict
from workbench.sequences.batch import MicroBatch
from workbench.text.tokenizer import Tokenizer

SIZES = {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_heads": HEADS, "embedding_size": HIDDEN}
SIZES |= {"kv_heads": KV_HEADS}
BOOKS, SHORTEST, VOCABULARY = 5, 10, "8192"
PACKING = ("across", "full")


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


def ours(root: PretrainingModel, micros: list[tuple[str, MicroBatch]], device: torch.device) -> Step:
    """The step of the recipe's own networks and heads."""
    there = [micro.to(device) for _, micro in micros]

    def loss(number: int) -> torch.Tensor:
        micro = there[number]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            outputs = root(micro, list(micro.counts))
        return torch.stack([out.loss / max(micro.counts[name], 1) for name, out in outputs.items()]).sum()

    return stepping(root, loss)


def theirs(peer: Any, model: nn.Module, micros: list[MicroBatch], device: torch.device, head: str = "") -> Step:
    """The step of the peer."""
    inputs = [moved(peer.inputs(micro), device) for micro in micros]

    def loss(number: int) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            return loss_of(model, inputs[number], head)

    return stepping(model, loss)


def moved(value: Any, device: torch.device) -> Any:
    """Tensors in dicts and tuples, on the device."""
    if isinstance(value, dict):
        return {name: moved(inner, device) for name, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(moved(inner, device) for inner in value)
    return value.to(device)


def measure(
    recipe: Recipe, peer: Any, make: Callable[[int], nn.Module], options: argparse.Namespace, count: int
) -> tuple[dict[str, float], list[list[MicroBatch]]]:
    """Seconds of a round of `count` micro-batches by contestant, and the micro-batches as they come and by length.

    Args:
        make: makes the peer's model for a vocabulary of this size.
    """
    device = torch.device(options.device)
    tokenizer = Tokenizer.load(recipe.tokenizer or "")
    micros = micro_batches(recipe, tokenizer, count)
    resumes = any(task.order == "continuous" for task in recipe.tasks.values())
    orders = [micros, *([] if resumes else [micro_batches(recipe, tokenizer, count, by_length=True)])]
    root = make_model(recipe, tasks_of(recipe, tokenizer), tokenizer).to(device).train()
    model = make(len(token_table(next(iter(root.networks.values())), "text"))).to(device)
    steps = {"ours": ours(root, micros, device)}
    for name, order in zip(("padded", "grouped"), orders, strict=False):
        plain = [micro for _, micro in order]
        steps[name] = theirs(peer, model, plain, device)
        if name == "grouped" and peer.head:
            steps["grouped + masked"] = theirs(peer, model, plain, device, peer.head)
    works = {name: lambda step=step: [step(number) for number in range(count)] for name, step in steps.items()}
    return compared(works, options.rounds, clock_of(options.threads, options.device)), [
        [micro for _, micro in order] for order in orders
    ]


def row_of(seconds: dict[str, float], units: Sequence[float]) -> dict[str, float]:
    """Our units a second, and how many times as many that is as each peer has.

    Args:
        units: of a round, in batches as they come and in those by length.
    """
    speeds = {name: units[name.startswith("grouped")] / each for name, each in seconds.items()}
    return {"ours": speeds.pop("ours"), **{name: units[0] / seconds["ours"] / each for name, each in speeds.items()}}


def printed(system: str, peer: str, row: dict[str, float]) -> None:
    """A line of the table: the ratio to each contestant, where it takes part."""
    ratios = (f"{row[name]:.2f}" if name in row else "" for name in ("padded", "grouped", "grouped + masked"))
    print(f"| {system} | {peer} | {row['ours']:,.5g} | {' | '.join(ratios)} |", flush=True)


def rows_of_text(micros: list[MicroBatch]) -> float:
    """Tokens of the first view of each micro-batch, all streams together."""
    return sum(stream.rows for micro in micros for stream in next(iter(micro.views.values())).streams.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for the corpus")
    parser.add_argument("--only", nargs="*", default=list(PEERS), choices=list(PEERS), help="systems; default: all")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unpacked", action="store_true", help="one text a sequence where recipes pack several")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    prepare(options.data.resolve(), options.output.resolve())
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    for system in options.only:
        peer = PEERS[system]
        seconds, orders = measure(recipe_of(system, options), peer, peer.made, options, BATCHES)
        printed(system, peer.model, row_of(seconds, [rows_of_text(micros) for micros in orders]))


if __name__ == "__main__":
    main()

"""What knowledge costs: the training step of K-BERT and of ERNIE-THU next to plain BERT's, and making sentence trees.

    python -m benchmarks.knowledge_steps --data data --output steps [--only k-bert trees]

`data` is a folder with the raw corpora gutenberg and codex. The texts are paragraphs of books in which every
`--every`th word is a mention of a random entity of CoDEx-S that has triples, so that with the default a tenth of the
tokens are aligned. Both systems are their recipes at one size (4 layers x 256, 4 heads, dropout 0.1; vectors of size
100), on the first micro-batches of the corpus.

- `k-bert`: BERT reads the very same tokens, branches included, and everybody sees everybody;
- `ernie-thu`: BERT reads the same text without the entities, and has no entities to predict;
- `trees`, `trees-rows`: `kg.sentence_tree` on sequences that are made, next to `benchmarks.tree_peer`, a sentence after
  the other with its visible matrix, filled pair by pair and row by row. Both have branches that are encoded already.

Measured is the step on batches that are made: forward, backward, clipping, AdamW, in float32 on a CPU, bfloat16 on a
GPU. Rounds over all micro-batches alternate in one process (`benchmarks.rounds`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.real_data import call
from benchmarks.rounds import clock_of, compared
from benchmarks.text_steps import BATCHES, micro_batches, ours
from benchmarks.tree_peer import Filling, Known, Tree, by_pairs, by_rows, sentence_tree
from kg.sequences.transforms.sentence_tree import SentenceTreeTransform
from workbench.core.files.drafts import write_text
from workbench.core.keyed import Draws
from workbench.core.processes.malloc import keep_freed_memory
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.sequences.batch import Batch, MicroBatch
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of

PARAGRAPHS, SHORTEST = 400, 40
LAYER = "num_heads: 4, intermediate_size: 1024"
TEXT = "{layer: self, stream: text, " + LAYER
FUSED = "{layer: kg.aggregator, streams: [text, entity], num_heads: [4, 4], intermediate_size: 1024"
LAYERS = {
    "bert": f"[{TEXT}, repeat: 4}}]",
    "k-bert": f"[{TEXT}, norm: unbiased, norm_eps: 1e-6, repeat: 4}}]",
    "ernie-thu": f"[{TEXT}}}, {FUSED}, entity_attention: false}}, {FUSED}}}, {FUSED}, entity_output: false}}]",
}
Work = Callable[[], object]
TREE = ("branch", "anchor")
"""Fields of a stream whose rows see all but some."""


def prepare(data: Path, folder: Path, every: int) -> None:
    """The graph, the texts with their mentions, a tokenizer of both and vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    raw, corpus, graph = folder / "records.jsonl", str(folder / "wiki-linked"), str(folder / "graph")
    if not raw.exists():
        heads = [line.split("\t")[0] for line in (data / "codex/codex-s/train.txt").read_text("utf-8").splitlines()]
        records = _records(data / "gutenberg/books.jsonl", sorted(set(heads)), every)
        write_text(raw, "\n".join(json.dumps(record, ensure_ascii=False) for record in records))
    commands = [
        ("graph", "triples", str(data / "codex/codex-s")),
        ("wiki-linked", "text", str(raw)),
        ("tokenizer.json", "tokenizer", corpus, graph, "--vocab-size", "8192"),
        ("entities.safetensors", "vectors", graph, "--dim", "100", "--epochs", "1"),
    ]
    for name, *command in commands:
        if not (folder / name).exists():
            call("prepare", *command, "--output", str(folder / name))


def _records(books: Path, entities: list[str], every: int) -> Iterator[dict[str, Any]]:
    """Paragraphs with a mention at every `every`th word."""
    draws = random.Random(0)
    with books.open(encoding="utf-8") as lines:
        paragraphs = (part for book in lines for part in json.loads(book)["text"].split("\n\n"))
        words = (paragraph.split() for paragraph in paragraphs)
        for found in itertools.islice((each for each in words if len(each) >= SHORTEST), PARAGRAPHS):
            ends = list(itertools.accumulate(len(word) + 1 for word in found))
            spans = [
                [ends[i] - 1 - len(found[i]), ends[i] - 1, draws.choice(entities), 1.0]
                for i in range(every - 1, len(found), every)
            ]
            yield {"text": " ".join(found), "spans": spans}


def recipe_of(system: str, options: argparse.Namespace) -> Recipe:
    """The system at the benchmark's size."""
    size = f"train.global_batch_size={options.batch}", f"train.micro_batch_size={options.batch}", "train.num_workers=0"
    overrides = [f"vars.data={options.output.resolve()}", "model.streams.text.hidden_size=256", *size]
    overrides += [f"model.layers={LAYERS[system]}", f"tasks.wiki.sequence.max_length={options.length}"]
    return load_recipe(system, overrides)


def without_knowledge(recipe: Recipe) -> Recipe:
    """Plain BERT: its text stream and objectives alone, in as many layers."""
    network = recipe.networks["main"]
    text = {"text": network.streams["text"]}
    layer = {k: v for k, v in network.layers[0].items() if k != "repeat"}
    depth = sum(each.get("repeat", 1) for each in network.layers)
    task = recipe.tasks["wiki"]
    plain = replace(
        task,
        sequence=replace(task.sequence, transforms=[]),
        objectives=[each for each in task.objectives if not each["objective"].startswith("kg.")],
    )
    return replace(
        recipe, model=replace(network, streams=text, layers=[{**layer, "repeat": depth}]), tasks={"wiki": plain}
    )


def plain_batch(micro: MicroBatch, objectives: list[str]) -> MicroBatch:
    """The same tokens for BERT: without entities, without branches and what they may see."""

    def plain(view: Batch) -> Batch:
        text = view.streams["text"]
        fields = {name: values for name, values in text.fields.items() if name not in TREE}
        targets = {name: values for name, values in view.targets.items() if name in objectives}
        links = {name: values for name, values in view.links.items() if name in objectives}
        return replace(view, streams={"text": replace(text, fields=fields)}, targets=targets, links=links)

    counts = {name: count for name, count in micro.counts.items() if name in objectives}
    return replace(micro, views={name: plain(view) for name, view in micro.views.items()}, counts=counts)


def steps_of(system: str, options: argparse.Namespace) -> tuple[list[Work], dict[str, Any]]:
    """A round of the system's steps and one of BERT's, and what is read."""
    device = torch.device(options.device)
    recipe = recipe_of(system, options)
    tokenizer = Tokenizer.load(recipe.tokenizer or "")
    micros = micro_batches(recipe, tokenizer)
    plain = without_knowledge(recipe)
    tasks = tasks_of(plain, tokenizer)
    bare = [(task, plain_batch(micro, tasks[task].names)) for task, micro in micros]
    roots = [make_model(each, tasks_of(each, tokenizer), tokenizer).to(device).train() for each in (recipe, plain)]
    both = [ours(root, batches, device) for root, batches in zip(roots, (micros, bare), strict=True)]
    return [lambda step=step: [step(number) for number in range(len(micros))] for step in both], _read(micros)


def _read(micros: list[tuple[str, MicroBatch]]) -> dict[str, Any]:
    """Tokens of all micro-batches, and the share of them that are branches' or have an entity."""
    views = [view for _, micro in micros for view in micro.views.values()]
    tokens = sum(view.streams["text"].rows for view in views)
    branches = sum(int((view.streams["text"].fields.get("branch", torch.zeros(0)) > 0).sum()) for view in views)
    entities = [view.streams["entity"].fields["entity_ids"] for view in views if "entity" in view.streams]
    aligned = sum(int((ids > 0).sum()) for ids in entities)
    return {"tokens": tokens, "share": (branches + aligned) / tokens}


def trees(options: argparse.Namespace, filling: Filling) -> tuple[list[Work], dict[str, Any]]:
    """A round of making trees of some sequences, by the step and by the peer."""
    recipe = recipe_of("k-bert", options)
    tokenizer = Tokenizer.load(recipe.tokenizer or "")
    sequences = _sequences(recipe, tokenizer)
    spec = {name: value for name, value in recipe.tasks["wiki"].sequence.transforms[0].items() if name != "transform"}
    step = SentenceTreeTransform(**{**spec, "triples": None, "overflow": "cut"}, tokenizer=tokenizer)
    maker = step.branches
    assert maker is not None
    known: list[Known] = []
    for sequence in sequences:
        text = sequence.streams["text"]
        mentions = [(s.start, s.end, maker.of(s.entity).ids) for s in sequence.spans_of("text")]
        known.append(Known(text["input_ids"].tolist(), [m for m in mentions if m[2]]))
    draws = Draws("benchmark", number=(0, 0, 0))
    length = spec["max_length"]
    trees = [sentence_tree(each, length, filling) for each in known]

    def build() -> list[Sequence]:
        return step(sequences, draws)

    def build_peers() -> list[Tree]:
        return [sentence_tree(each, length, filling) for each in known]

    for sequence, tree in zip(build(), trees, strict=True):
        text = sequence.streams["text"]
        assert text["input_ids"].tolist() == tree.tokens, "the peer's trees are others"
        assert text["position_ids"].tolist() == tree.positions, "the peer's positions are others"
    rows = sum(len(tree.tokens) for tree in trees)
    return [build, build_peers], {"tokens": rows, "share": 1 - sum(len(each.tokens) for each in known) / rows}


def _sequences(recipe: Recipe, tokenizer: Tokenizer) -> list[Sequence]:
    """What the recipe's builder makes of the corpus's first samples."""
    task = tasks_of(replace(recipe, tasks={"wiki": _bare(recipe)}), tokenizer)["wiki"]
    reader = reader_of(recipe, task)
    samples = [sample for number in range(BATCHES) for sample in reader.micro_batch(number, 0)]
    return task.sequences(samples, (0, 0, 0))


def _bare(recipe: Recipe) -> Any:
    task = recipe.tasks["wiki"]
    return replace(task, sequence=replace(task.sequence, transforms=[]))


WORKS: dict[str, Callable[[argparse.Namespace], tuple[list[Work], dict[str, Any]]]] = {
    "k-bert": lambda options: steps_of("k-bert", options),
    "ernie-thu": lambda options: steps_of("ernie-thu", options),
    "trees": lambda options: trees(options, by_pairs),
    "trees-rows": lambda options: trees(options, by_rows),
}


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Medians of both sides' seconds a round, and ours / theirs."""
    works, read = WORKS[name](options)
    clock = clock_of(options.threads, options.device)
    ours, theirs = compared(dict(zip(("ours", "the other"), works, strict=True)), options.rounds, clock).values()
    return {"name": name, **read, "ours": ours, "theirs": theirs, "ratio": ours / theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for the corpora")
    parser.add_argument("--only", nargs="*", default=list(WORKS), choices=list(WORKS), help="default: all")
    parser.add_argument("--every", type=int, default=8, help="words from mention to mention")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    prepare(options.data.resolve(), options.output.resolve(), options.every)
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    print(
        "| | tokens | of branches, or aligned | ours, s | the other, s | ours / the other |\n|---|---|---|---|---|---|"
    )
    for name in options.only:
        row = measure(name, options)
        print(
            "| {name} | {tokens:,} | {share:.0%} | {ours:.3f} | {theirs:.3f} | {ratio:.3f} |".format(**row), flush=True
        )


if __name__ == "__main__":
    main()

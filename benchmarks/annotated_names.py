"""How much of K-BERT's medical NER its graph states: the annotated names that are heads of Medical.spo.

    python -m benchmarks.annotated_names --data data/kbert_zh [--runs knowledge-result]

`data` has kgs/Medical.spo, medical_ner/train.tsv and medical_ner/dev.tsv of K-BERT's repository. The tested sentences
are those of dev.tsv whose text train.tsv lacks. The tables, also on the standard output:

    names      spellings of entities by their number of characters, and how many are heads of the graph
    heads      the graph's heads by class, and how many are annotated entities of train.tsv or dev.tsv
    windows    stretches of the tested sentences outside of entities, and how many are heads
    alone      the longest heads in a tested sentence as entities, without a model; classes as train.tsv has them
    recall     with `--runs`, of 200 sentences of `benchmarks.few_shot_ner`: of entities that the graph states or not
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.few_shot_ner import GRAPH, STUDY, UNANNOTATED, Row, read_rows
from benchmarks.few_shot_tables import Rows, tested
from benchmarks.result_tables import markdown, spread
from workbench.core.keyed import generator
from workbench.metrics.chunks import chunks
from workbench.metrics.tag_schemes import OUTSIDE

LENGTHS = ((1, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 99))
WINDOWS = 20
"""Drawn of each sentence."""
Entity = tuple[int, int, str]


def entities(row: Row) -> list[tuple[str, Entity]]:
    """The entities of a sentence with their spelling."""
    signs = row["text_a"].split(" ")
    return [("".join(signs[of[0] : of[1]]), of) for of in chunks(row["label"].split(" "))]


def spellings(rows: Iterable[Row]) -> set[str]:
    """How entities are spelt."""
    return {spelt for row in rows for spelt, _ in entities(row)}


def by_length(sets: dict[str, set[str]], heads: dict[str, str]) -> Rows:
    """Head and rows: how many spellings are heads of the graph."""
    table = [["characters", *sets]]
    for low, high in LENGTHS:
        cells = []
        for names in sets.values():
            of_length = [name for name in names if low <= len(name) <= high]
            cells.append(f"{sum(name in heads for name in of_length)} of {len(of_length)}")
        table.append([str(low) if low == high else f"{low} to {high}" if high < 99 else f"{low} or more", *cells])
    return table


def by_class(annotated: set[str], heads: dict[str, str]) -> Rows:
    """Head and rows: how many heads of a class are annotated."""
    whole, ours = Counter(heads.values()), Counter(heads[name] for name in annotated & heads.keys())
    return [["class of the head", "heads", "annotated"], *([of, str(n), str(ours[of])] for of, n in whole.items())]


def windows(rows: Iterable[Row], heads: dict[str, str]) -> tuple[int, int]:
    """How many drawn stretches of 3 to 8 signs outside of entities are heads, and how many there are."""
    found = total = 0
    for number, row in enumerate(rows):
        signs, tags = row["text_a"].split(" "), row["label"].split(" ")
        rng = generator("annotated names, windows", number)
        for _ in range(WINDOWS):
            size = int(rng.integers(3, 9))
            begin = int(rng.integers(0, max(1, len(signs) - size)))
            if {*tags[begin : begin + size]} == {OUTSIDE}:
                total += 1
                found += "".join(signs[begin : begin + size]) in heads
    return found, total


def longest(row: Row, heads: dict[str, str], classes: dict[str, str]) -> Iterator[Entity]:
    """The longest heads of a sentence from left to right, each with the class that its graph class stands for."""
    signs, most, begin = row["text_a"].split(" "), max(map(len, heads)), 0
    while begin < len(signs):
        ends = range(min(len(signs), begin + most), begin + 1, -1)
        end = next((end for end in ends if "".join(signs[begin:end]) in heads), None)
        if end is not None:
            yield begin, end, classes.get(heads["".join(signs[begin:end])], "")
        begin = end or begin + 1


def alone(train: Iterable[Row], test: Iterable[Row], heads: dict[str, str]) -> Rows:
    """Head and row: precision, recall and F1 of the graph alone."""
    votes: dict[str, Counter[str]] = {of: Counter() for of in heads.values()}
    for spelt, (_, _, name) in (entity for row in train for entity in entities(row)):
        if spelt in heads:
            votes[heads[spelt]][name] += 1
    classes = {of: counted.most_common(1)[0][0] for of, counted in votes.items() if counted}
    right = found = gold = 0
    for row in test:
        ours, theirs = {*longest(row, heads, classes)}, {of for _, of in entities(row)}
        right, found, gold = right + len(ours & theirs), found + len(ours), gold + len(theirs)
    scores = (right / found, right / gold, 2 * right / (found + gold))
    return [["", "precision", "recall", "F1"], ["the graph alone", *(f"{score:.3f}" for score in scores)]]


def recall(test: list[Row], heads: dict[str, str], runs: Path, seeds: int) -> Rows:
    """Head and rows: the share of entities that runs on 200 sentences find, by what the graph and these know."""
    designs = [design for design in (GRAPH, UNANNOTATED, "no-kg") if tested(STUDY, 200, design, seeds, runs, "test")]
    shares: dict[tuple[bool, bool], dict[str, list[float]]] = {}
    counts: dict[tuple[bool, bool], list[float]] = {}
    for design in designs:
        for seed, items in tested(STUDY, 200, design, seeds, runs, "test").items():
            known = spellings(read_rows(runs / "raw" / f"few-200-{seed}.tsv"))
            hits: dict[tuple[bool, bool], list[bool]] = {}
            for line, row in zip(items.lines, test, strict=True):
                ours = set(chunks(line["prediction"]))
                for spelt, of in entities(row):
                    hits.setdefault((spelt in heads, spelt in known), []).append(of in ours)
            for group, found in hits.items():
                shares.setdefault(group, {}).setdefault(design, []).append(sum(found) / len(found))
                counts.setdefault(group, []).append(len(found))
    table = [["entity", "entities", *(STUDY.designs[design] for design in designs)]]
    for group in sorted(shares, reverse=True):
        words = f"{'in' if group[0] else 'not in'} the graph, {'among the 200' if group[1] else 'new'}"
        mean = f"{sum(counts[group]) / len(counts[group]):.0f}"
        table.append([words, mean, *(spread(shares[group][design]) for design in designs)])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with kgs/ and medical_ner/")
    parser.add_argument("--runs", type=Path, help="OUTPUT of benchmarks.few_shot_ner")
    parser.add_argument("--seeds", type=int, default=5, help="of the runs")
    options = parser.parse_args()
    lines = (options.data / "kgs" / "Medical.spo").read_text(encoding="utf-8").splitlines()
    heads = {head: tail for head, _, tail in (line.split("\t") for line in lines if line)}
    train, dev = (read_rows(options.data / "medical_ner" / f"{name}.tsv") for name in ("train", "dev"))
    texts = {row["text_a"] for row in train}
    test = [row for row in dev if row["text_a"] not in texts]
    known = spellings(train)
    names = {"spellings of train.tsv": known, "of the tested sentences alone": spellings(test) - known}
    found, total = windows(test, heads)
    tables = [by_length(names, heads), by_class(known | spellings(dev), heads), alone(train, test, heads)]
    tables += [recall(test, heads, options.runs, options.seeds)] if options.runs else []
    print(*map(markdown, tables), f"{found} of {total} stretches outside of entities are heads", sep="\n\n")


if __name__ == "__main__":
    main()

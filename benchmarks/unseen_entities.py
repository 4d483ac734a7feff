"""Which system predicts triples of entities that it never saw? SimKGC and KEPLER on CoDEx-S, at equal processor time.

    OMP_NUM_THREADS=1 python -m benchmarks.unseen_entities --data data/codex --output OUTPUT [--seconds 45] [--jobs 2]

`data` has codex-s/*.txt, relations.jsonl and entity_text_codex-s.jsonl of CoDEx (tsafavi/codex). A tenth of the
entities is the test, a twentieth chooses the learning rate; no training triple has one of them (`prepare triples
--inductive`). Every network has the tiny size of its recipe, and reads names with the beginnings of descriptions:

    simkgc       questions and answers find each other, in two encoders
    kepler       mlm on the descriptions of the other entities, and a TransE loss, in one encoder
    kepler-ke    the same without mlm after the first step
    -shuffled    every entity has the name and description of another one, in training and test
    -names       names alone

A short run of each measures the processor time of a step. The number of steps follows from it and --seconds. Attacks
by data alone rank by words that two descriptions share, by the names in them, and by how frequent an entity is. Ranks
are filtered by all triples of CoDEx-S. Everything is done by the ordinary commands, which are printed; what is there
already is not done again. OUTPUT/results.md has the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.commands import call
from benchmarks.few_shot_ner import in_parallel
from benchmarks.few_shot_tables import Rows, Study, place, publish
from benchmarks.result_tables import result_of, spread
from kg.evaluation.triple_scoring import TripleRows
from kg.graph.store import GraphStore
from kg.vectors.frequency import FrequencyScores
from kg.vectors.scores import TripleScores
from kg.vectors.triple_ranks import rank_triples, rows_of
from workbench.core.keyed import generator
from workbench.corpora.corpus import Corpus
from workbench.metrics.bm25 import Bm25

SIMKGC, KEPLER, ALONE = "simkgc", "kepler", "kepler-ke"
SHUFFLED, NAMES = "-shuffled", "-names"
STUDY = Study(
    {
        SIMKGC: "SimKGC",
        KEPLER: "KEPLER",
        ALONE: "KEPLER without mlm",
        f"{SIMKGC}{SHUFFLED}": "SimKGC, names and descriptions exchanged",
        f"{SIMKGC}{NAMES}": "SimKGC, names alone",
    },
    (
        *((SIMKGC, KEPLER), (SIMKGC, ALONE), (KEPLER, ALONE)),
        *((SIMKGC, f"{SIMKGC}{SHUFFLED}"), (SIMKGC, f"{SIMKGC}{NAMES}")),
    ),
    *("link-prediction", "mrr", "MRR", "seconds", "entities"),
    unit=lambda line: str(line["head"]),
)
SPLIT = ("--split", "valid=0.05", "--split", "test=0.1", "--inductive")
RATES, TUNING_SEED, TUNING_SECONDS = ("5e-4", "1e-3", "2e-3"), 100, 20
TEST = "graph-test-known=all-unseen=True"
LENGTH = 32
PILOT = (5, 30)
"""Steps of the two short runs whose difference is the time of a step."""


def graph_of(design: str, output: Path) -> Path:
    """The graph that a design is trained on, by which texts its entities have."""
    end = next((end for end in (SHUFFLED, NAMES) if design.endswith(end)), "")
    return output / f"corpora{end}" / "graph"


def prepare(data: Path, output: Path) -> None:
    """The graphs with their splits, the texts of mlm and the tokenizer."""
    corpora = output / "corpora"
    if (corpora / "tokenizer.json").exists():
        return
    output.mkdir(parents=True, exist_ok=True)
    parts = [(data / "codex-s" / f"{part}.txt").read_text("utf-8") for part in ("train", "valid", "test")]
    (output / "triples.txt").write_text("".join(parts), encoding="utf-8")
    lines = (data / "entity_text_codex-s.jsonl").read_text("utf-8").splitlines()
    texts = [(one["id"], one["label"], one["extract"] or one["description"]) for one in map(json.loads, lines)]
    order = generator("unseen entities, exchanged texts").permutation(len(texts)).tolist()
    entities = {
        "": texts,
        SHUFFLED: [(each, *texts[other][1:]) for (each, *_), other in zip(texts, order, strict=True)],
        NAMES: [(each, name, name) for each, name, _ in texts],
    }
    for end, rows in entities.items():
        written = [json.dumps(dict(zip(("id", "label", "description"), row, strict=True))) for row in rows]
        (output / f"entities{end}.jsonl").write_text("\n".join(written) + "\n", encoding="utf-8")
        given = [str(output / "triples.txt"), "--entities", str(output / f"entities{end}.jsonl")]
        given += ["--relations", str(data / "relations.jsonl")]
        call("prepare", "triples", *given, *SPLIT, "--output", str(graph_of(end, output)))
        if not end:
            call("prepare", "triples", *given, "--output", str(corpora / "all"))
    seen = [json.dumps({"text": sample["description"]}) for sample in Corpus.open(corpora / "graph")]
    (output / "text.jsonl").write_text("\n".join(seen) + "\n", encoding="utf-8")
    call("prepare", "text", str(output / "text.jsonl"), "--output", str(corpora / "text"))
    words = (str(corpora / "text"), str(corpora / "graph"), "--vocab-size", "8000")
    call("prepare", "tokenizer", *words, "--output", str(corpora / "tokenizer.json"))


def pretrain(output: Path, design: str, run: Path, steps: int, rate: str, seed: int) -> float:
    """Train a design; the processor time in seconds."""
    graph = graph_of(design, output)
    recipe = SIMKGC if design.startswith(SIMKGC) else KEPLER
    changes = [f"vars.data={output / 'corpora'}", f"tasks.triples.sequence.max_length={LENGTH}"]
    if recipe == SIMKGC:
        changes.append(f"vars.graph={graph}")
    else:
        changes += [f"tasks.triples.corpora=[{graph}]", "tasks.triples.sequence.named=true"]
        changes += [f"tasks.triples.{place}.graph={graph}" for place in ("sequence", "objectives[0]")]
        changes += ["schedule=staged", "tasks.text.end_step=1"] if design.startswith(ALONE) else []
    loop = (f"train.max_steps={steps}", f"train.lr={rate}", f"seed={seed}", "train.save_every=0")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call("pretrain", f"{recipe}-tiny", *changes, *loop, "--output", str(run))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def steps_in(output: Path, seconds: int) -> dict[str, int]:
    """How many steps each design makes in this processor time; that of a step is kept in OUTPUT/steps.json."""
    kept = output / "steps.json"
    if not kept.exists():
        taken, pilots = {}, output / "pilots"
        shutil.rmtree(pilots, ignore_errors=True)  # a finished run would take no time
        for design in STUDY.designs:
            if (plain := design.removesuffix(SHUFFLED)) not in taken:
                times = [pretrain(output, design, pilots / f"{design}-{n}", n, RATES[1], 0) for n in PILOT]
                taken[design] = (times[1] - times[0]) / (PILOT[1] - PILOT[0])
            taken[design] = taken[plain]
        kept.write_text(json.dumps(taken, indent=1), encoding="utf-8")
    return {design: round(seconds / step) for design, step in json.loads(kept.read_text("utf-8")).items()}


def evaluate(output: Path, run: Path, design: str, part: str) -> None:
    graph = graph_of(design, output)
    options = ("--graph", str(graph), "--known", str(output / "corpora" / "all"), "--unseen")
    call("evaluate", "link-prediction", str(run), f"{graph}-{part}", *options)


def tuned(output: Path, steps: dict[str, int], cell: tuple[str, str]) -> float:
    """The MRR on the valid part."""
    design, rate = cell
    run = output / "runs" / f"tune-{design}-{rate}"
    if result_of(run) is None:
        pretrain(output, design, run, steps[design], rate, TUNING_SEED)
        evaluate(output, run, design, "valid")
    return float((result_of(run) or {})["numbers"]["mrr"])


def rates(output: Path, steps: dict[str, int], jobs: int) -> dict[str, str]:
    """The rate of each system that is best on the valid part; KEPLER without mlm and the controls have the same."""
    kept = output / "tuned.json"
    if not kept.exists():
        cells = [(design, rate) for design in (SIMKGC, KEPLER) for rate in RATES]
        found = dict(zip(cells, in_parallel(partial(tuned, output, steps), cells, jobs), strict=True))
        choice = {of: max(RATES, key=lambda rate: found[of, rate]) for of in (SIMKGC, KEPLER)}
        valid = {f"{design} {rate}": mrr for (design, rate), mrr in found.items()}
        kept.write_text(json.dumps({"rates": choice, "valid": valid}, indent=1), encoding="utf-8")
    return dict(json.loads(kept.read_text("utf-8"))["rates"])


def trained(output: Path, steps: dict[str, int], chosen: dict[str, str], cell: tuple[int, int, str]) -> None:
    """Train and test a cell: seconds, seed, design. OUTPUT/runs/.../processor-seconds has what it took."""
    seconds, seed, design = cell
    run = place(seconds, design, seed, output)
    if result_of(run) is None:
        rate = chosen[SIMKGC if design.startswith(SIMKGC) else KEPLER]
        taken = pretrain(output, design, run, steps[design], rate, seed)
        (run / "processor-seconds").write_text(f"{taken:.1f}", encoding="utf-8")
        evaluate(output, run, design, "test")


class SharedWords:
    """Scores of triples by data alone: BM25 between the texts of two entities, or whether one's name is in the other's
    text; with `frequency` the relation's more frequent entities are better among equals."""

    def __init__(self, graph: GraphStore, *, names: bool, frequency: float) -> None:
        self.frequent = FrequencyScores(graph.triple_rows, graph.num_entities)
        self.frequency, count = frequency, graph.num_entities
        texts = [f"{graph.label(entity)}: {graph.text_of(entity)}" for entity in graph.ids]
        if names:
            called = [graph.label_of(row).lower() for row in range(count)]
            rows = [[name in text for name in called] for text in map(str.lower, texts)]
            inside = np.array(rows, np.float32)
            self.near = torch.from_numpy(np.maximum(inside, inside.T))
        else:
            index = Bm25(texts)
            self.near = torch.from_numpy(np.stack([index.scores(text) for text in texts]).astype(np.float32))

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]."""
        return self.near[heads] + self.frequency * self.frequent.tails(heads, relations)

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]."""
        return self.near[tails] + self.frequency * self.frequent.heads(relations, tails)

    def triples(self, triples: Tensor) -> Tensor:
        """[triples, 3] -> [triples]."""
        return self.tails(triples[:, 0], triples[:, 1]).gather(1, triples[:, 2:]).squeeze(1)


def attacks(output: Path) -> Rows:
    """Head and rows: MRR by data alone."""
    corpora = output / "corpora"
    graph = GraphStore.open(corpora / "graph")
    triples = TripleRows.of(Corpus.open(corpora / "graph-test"), graph).rows
    known = rows_of(graph, GraphStore.open(corpora / "all").triples())[0]
    ways: dict[str, TripleScores] = {
        "words that both texts share (BM25)": SharedWords(graph, names=False, frequency=0),
        "frequent, then shared words": SharedWords(graph, names=False, frequency=1e4),
        "one text has the name of the other": SharedWords(graph, names=True, frequency=0),
        "the same, then frequent": SharedWords(graph, names=True, frequency=1e-5),
        "frequent entities of the relation": FrequencyScores(graph.triple_rows, graph.num_entities),
    }
    rows = [["by data alone", "MRR", "of tails", "of heads"]]
    for words, way in ways.items():
        ranks = rank_triples(way, triples, known, graph.num_relations, 64, num_entities=graph.num_entities)
        whole = ranks.summary()
        rows.append([words, *(f"{side.mrr:.3f}" for side in (whole.both, whole.tail, whole.head))])
    return rows


def sides(seconds: int, seeds: int, output: Path, steps: dict[str, int]) -> Rows:
    """Head and rows: steps, measured time and the numbers of each side, by design."""
    rows = [["trained with", "steps", "processor seconds", "MRR of tails", "MRR of heads", "Hits@10"]]
    chance = 0.0
    for design, words in STUDY.designs.items():
        runs = [place(seconds, design, seed, output) for seed in range(seeds)]
        found: list[dict[str, Any]] = [result for run in runs if (result := result_of(run))]
        if found:
            taken = [float((run / "processor-seconds").read_text()) for run in runs if result_of(run)]
            cells = [spread([one["numbers"][name] for one in found]) for name in ("tail mrr", "head mrr", "hits@10")]
            rows.append([words, str(steps[design]), f"{min(taken):.0f} to {max(taken):.0f}", *cells])
            chance = float(found[0]["baselines"]["chance"]["mrr"])
    return [*rows, [f"chance: MRR {chance:.3f}", *[""] * 5]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of CoDEx")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--seconds", type=int, default=45, help="processor time of a training")
    parser.add_argument("--seeds", type=int, default=3, help="so many, from 0 on")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    options = parser.parse_args()
    os.environ.setdefault("WORKBENCH_LOG", "WARNING")
    output = options.output.resolve()
    prepare(options.data.resolve(), output)
    steps = steps_in(output, options.seconds)
    chosen = rates(output, steps_in(output, TUNING_SECONDS), options.jobs)
    systems = [design for design in STUDY.designs if not design.endswith((SHUFFLED, NAMES))]
    controls = [design for design in STUDY.designs if design not in systems]
    cells = [(options.seconds, s, d) for group in (systems, controls) for s in range(options.seeds) for d in group]
    in_parallel(partial(trained, output, steps, chosen), cells, options.jobs)
    more = [sides(options.seconds, options.seeds, output, steps), attacks(output)]
    publish(STUDY, [options.seconds], options.seeds, output, (TEST,), more)


if __name__ == "__main__":
    main()

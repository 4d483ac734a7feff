"""Does a model use the photograph? Retrieval, masked words and questions, each next to its controls.

    OMP_NUM_THREADS=1 python -m benchmarks.image_evidence --data data --output image-evidence [--parts retrieval]

`data` has the raw corpora flickr8k and vqa_v2. A photograph is the mean of EfficientNet-Lite0's grid.

    retrieval   `dual-encoder-pretrained`, 300 steps on flickr8k's training part; 500 photographs of its dev part, also
                with the features of one photograph for all
    words       masked words of flickr8k's captions: a joint network of two layers, trained for itself with the
                photograph, without (question-only) and with that of another caption; tested on the dev part likewise
    questions   VQA v2's training part in FOLDS by photograph: the two encoders are asked with a head that multiplies
                text and photograph; next to it the same without (question-only) and with other photographs

A seed governs all of a run. Everything is done by the ordinary commands, which are printed; what is there already is
not done again. OUTPUT has results.md and results.json of the results so far.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from base64 import b64decode
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.commands import call
from benchmarks.few_shot_ner import in_parallel
from benchmarks.few_shot_tables import spread_of
from benchmarks.result_tables import markdown, result_of, spread
from benchmarks.vision_systems import FEATURES, GRID
from workbench.core.keyed import generator
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.evaluation.scoring.evaluation_items import read_items
from workbench.metrics.resampling import compared_numbers, units_of
from workbench.metrics.tallies import Tally
from workbench.runs.metrics_file import read_metrics
from workbench.sequences.sequence import Sample

FOLDS = 5
WITH, WITHOUT, OTHERS = "with the photograph", "without it", "with another photograph"
ARMS = {WITH: "own", WITHOUT: "none", OTHERS: "other"}
"""The short name of each, in the names of runs."""
ENCODERS = "encoders"
TYPES = ("all", "other", "yes/no", "number")
RECALLS = tuple(f"{way}_retrieval/r{k}" for way in ("image", "text") for k in (1, 5, 10))
ONE_ROW = (*GRID[:-1], "1")
"""One row a photograph, the mean of the grid."""
QUIET = ("train.num_workers=0", "train.save_every=0", "train.log_every=50")
WORDS = (
    "model.streams.text={embedding: token, hidden_size: 128, max_positions: 64}",
    f"model.streams.image={{embedding: vision.regions, hidden_size: 128, feature_size: {FEATURES}, box_size: 0}}",
    "model.layers=[{layer: joint, streams: [text, image], num_heads: 4, intermediate_size: 512, repeat: 2}]",
    "model.poolers=[]",
    "tasks.pairs.sequence.image_processor={image_processor: vision.regions, backbone: null}",
    "tasks.pairs.objectives=[{objective: mlm, rate: 0.3, masking: whole_word}]",
    "train.global_batch_size=64",
    "train.micro_batch_size=64",
    "train.lr=2e-3",
    "train.max_steps=600",
    "train.evaluate_every=600",
)
GREY = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
"""An image of one pixel: where a model reads the features, the photograph itself would only be copied."""
FROZEN = "train.freeze=[networks.main.embeddings.text,networks.main.layers]"


def prepare(data: Path, corpora: Path, parts: Iterable[str]) -> dict[str, int]:
    """All corpora of some parts. Returns how many photographs and captions train and dev part have in common."""

    def made(name: str, *command: str | Path) -> Path:
        place = corpora / name
        if not place.exists():
            call("prepare", *map(str, command), "--output", str(place))
        return place

    def features(name: str, file: Path) -> Corpus:
        made(f"plain/{name}", "image-text", file)
        return Corpus.open(made(f"{name}-grid1", "regions", corpora / "plain" / name, *ONE_ROW))

    if "questions" in parts:
        asked = list(features("vqa", data / "vqa_v2" / "questions_train.jsonl"))
        fold = generator("image evidence, folds").permutation(len(asked)) % FOLDS
        for number in range(FOLDS):
            for name, chosen in (("train", fold != number), ("test", fold == number)):
                mine = [sample for sample, one in zip(asked, chosen, strict=True) if one]
                write(corpora / f"vqa-{name}-{number}", mine)
                write(corpora / f"vqa-{name}-{number}-other", exchanged(mine, "questions"))
    sets = {p: list(features(f"pairs-{p}", data / "flickr8k" / f"captions_{p}.jsonl")) for p in ("train", "dev")}
    for part, samples in sets.items():
        read = [{**sample, "image": GREY} for sample in samples]
        write(corpora / f"pairs-{part}-own", read)
        write(corpora / f"pairs-{part}-other", exchanged(read, "captions"))
    made("tokenizer.json", "tokenizer", corpora / "plain" / "pairs-train", "--vocab-size", "4000")
    photographs = [{sample["meta"]["sha256"] for sample in samples} for samples in sets.values()]
    captions = [{caption for sample in samples for caption in sample["captions"]} for samples in sets.values()]
    return {"photographs": len(set.intersection(*photographs)), "captions": len(set.intersection(*captions))}


def exchanged(samples: list[Sample], field: str) -> list[Sample]:
    """The samples, each with the field of another one: of the next in a random order."""
    order = generator("image evidence, exchanged", field, len(samples)).permutation(len(samples)).tolist()
    giver = dict(zip(order, order[1:] + order[:1], strict=True))
    return [{**sample, field: samples[giver[i]][field]} for i, sample in enumerate(samples)]


def write(place: Path, samples: list[Sample]) -> None:
    if place.exists():
        return
    with ShardWriter(place / "part-00000000.tar", kind="image-text") as writer:
        for sample in samples:
            fields = ("image", "captions", "questions", "regions", "meta")
            writer.add(sample["key"], {name: sample[name] for name in fields if name in sample})
    assert writer.info is not None
    about = {"backbone": samples[0]["meta"]["backbone"]}
    provenance = {"command": "benchmarks.image_evidence"}
    finish_corpus(place, kind="image-text", shards=[writer.info], provenance=provenance, about=about)


def finished(run: Path, begin: tuple[str, ...], test: tuple[str, ...] = ()) -> None:
    """A run that is trained and, with `test`, evaluated on a corpus."""
    if not (run / "trained").exists():
        call(*begin, *QUIET, "--output", str(run))
        (run / "trained").touch()
    if test and result_of(run) is None:
        call("evaluate", test[0], str(run), *test[1:])


def retrieval(run: Path, arm: str, seed: int, corpora: Path) -> None:
    """The dual encoder of a seed."""
    begin = ("pretrain", "dual-encoder-pretrained", f"vars.corpus={corpora / 'pairs-train-grid1'}", f"seed={seed}")
    finished(run, begin, ("retrieval", str(corpora / "pairs-dev-grid1")))


def words(run: Path, arm: str, seed: int, corpora: Path) -> None:
    """A run on masked words, with its held-out loss."""
    end = "other" if arm == OTHERS else "own"
    control = ("control=question-only",) if arm == WITHOUT else ()
    places = (f"vars.corpus={corpora / f'pairs-train-{end}'}", f"tokenizer={corpora / 'tokenizer.json'}")
    held_out = f"tasks.pairs.held_out=[{corpora / f'pairs-dev-{end}'}]"
    finished(run, ("pretrain", "tiny-joint", *places, held_out, *WORDS, *control, f"seed={seed}"))


def questions(run: Path, arm: str, fold: int, corpora: Path) -> None:
    """A run on the questions of all folds but one, which is its test."""
    end = f"{fold}-other" if arm == OTHERS else str(fold)
    train, test = (str(corpora / f"vqa-{part}-{end}") for part in ("train", "test"))
    control = ("--control", "question-only") if arm == WITHOUT else ()
    options = ("--epochs", "8", "--batch-size", "64", "--lr", "1e-3", "--max-length", "24", FROZEN, f"seed={fold}")
    finished(run, ("finetune", "vqa", str(run.parent / ENCODERS), train, *control, *options), ("vqa", test))


def encoders(output: Path) -> None:
    """A run of both encoders as they are: two steps that change nothing."""
    still = ("train.max_steps=2", "train.lr=1e-12", "train.lr_schedule.warmup_steps=0")
    corpus = f"vars.corpus={output / 'corpora' / 'pairs-train-own'}"
    finished(output / "runs" / ENCODERS, ("pretrain", "dual-encoder-pretrained", corpus, *still))


PARTS = {"retrieval": retrieval, "words": words, "questions": questions}


def work(output: Path, cell: tuple[str, str, int]) -> None:
    """The run of a question, an arm, and a seed or fold."""
    PARTS[cell[0]](place(*cell, output), *cell[1:], output / "corpora")


def place(part: str, arm: str, number: int, output: Path) -> Path:
    """The run of an arm, and its seed or fold."""
    return output / "runs" / f"{part}-{ARMS[arm]}-{number}"


def retrieval_table(seeds: int, output: Path) -> list[list[str]]:
    """Head and rows: recalls in per cent, of the model and of what knows nothing."""
    found = [one for seed in range(seeds) if (one := result_of(place("retrieval", WITH, seed, output)))]
    if not found:
        return []
    rows = [["", "seeds", *(name.replace("_retrieval/r", " R@") for name in RECALLS)]]
    rows += [
        ["dual encoder", str(len(found)), *(spread([100 * one["numbers"][name] for one in found]) for name in RECALLS)]
    ]
    for name, numbers in found[0]["baselines"].items():
        rows.append([name, "", *(f"{100 * numbers[recall]:.1f}" for recall in RECALLS)])
    return rows


def words_numbers(seeds: int, output: Path) -> dict[str, dict[int, dict[str, float]]]:
    """Held-out loss and accuracy by arm and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for arm in ARMS:
        for seed in range(seeds):
            run = place("words", arm, seed, output)
            last = read_metrics(run)[-1] if run.exists() and read_metrics(run) else {}
            numbers = {n: last[f"held_out/mlm/{n}"] for n in ("loss", "accuracy") if f"held_out/mlm/{n}" in last}
            if numbers:
                found.setdefault(arm, {})[seed] = numbers
    return found


def words_table(found: dict[str, dict[int, dict[str, float]]]) -> list[list[str]]:
    """Head and rows: the arms, and their differences from the first one in pairs of a seed."""
    if len(found) < len(ARMS):
        return []
    rows = [["", "seeds", "loss", "accuracy"]]
    for arm, of in found.items():
        rows.append([arm, str(len(of)), *(spread([one[n] for one in of.values()]) for n in ("loss", "accuracy"))])
    for arm in (WITHOUT, OTHERS):
        pairs = sorted(found[WITH].keys() & found[arm].keys())
        cells = []
        for n in ("loss", "accuracy"):
            of = spread_of([found[WITH][seed][n] - found[arm][seed][n] for seed in pairs])
            cells.append(f"{of.mean:+.3f} ({of.low:+.3f} to {of.high:+.3f})")
        rows.append([f"{WITH} less {arm}", str(len(pairs)), *cells])
    return rows


def answered(arm: str, output: Path, types: dict[Any, str]) -> Iterator[tuple[Any, str, float, str]]:
    """Question, answer type, accuracy and photograph, over all folds that were tested."""
    for fold in range(FOLDS):
        run = place("questions", arm, fold, output)
        for file in sorted((run / "evaluations").glob("vqa-*.jsonl")):
            items = read_items(file)
            for line, row in zip(items.lines, items.tallies["accuracy"].rows, strict=True):
                yield line["question_id"], types[line["question_id"]], float(row[0]), line["key"]


def questions_table(output: Path) -> tuple[list[list[str]], dict[str, Any]]:
    """Head and rows: accuracy by answer type, and differences with the paired bootstrap over photographs."""
    plain = output / "corpora" / "plain" / "vqa"
    if not plain.exists():
        return [], {}
    asked = [question for sample in Corpus.open(plain) for question in sample["questions"]]
    types = {question["question_id"]: question["answer_type"] for question in asked}
    found = {arm: {q: (kind, right, key) for q, kind, right, key in answered(arm, output, types)} for arm in ARMS}
    common = sorted(set.intersection(*(set(of) for of in found.values())))
    if not common:
        return [], {}
    rows, summary = [["", *TYPES]], {}
    chosen = {kind: [q for q in common if kind in ("all", types[q])] for kind in TYPES}
    rows.append(["questions", *(f"{len(chosen[kind]):,}" for kind in TYPES)])
    for arm, of in found.items():
        rows.append([arm, *(f"{statistics.fmean(of[q][1] for q in chosen[kind]):.1f}" for kind in TYPES)])
    for arm in (WITHOUT, OTHERS):
        cells = []
        for kind in TYPES:
            units = units_of([found[WITH][q][2] for q in chosen[kind]])
            sides = [[Tally.mean([found[name][q][1] for q in chosen[kind]])] for name in (arm, WITH)]
            one = compared_numbers(*sides, units)
            cells.append(f"{one.difference:+.1f} ({one.low:+.1f} to {one.high:+.1f})")
            summary[f"{kind}, less {arm}"] = one._asdict()
        rows.append([f"{WITH} less {arm}", *cells])
    return rows, summary


def publish(seeds: int, common: dict[str, int], output: Path) -> None:
    """OUTPUT/results.md and results.json."""
    masked = words_numbers(seeds, output)
    asked, gains = questions_table(output)
    tables = {"Retrieval": retrieval_table(seeds, output), "Masked words": words_table(masked), "Questions": asked}
    text = "\n\n".join(f"## {name}\n\n{markdown(rows)}" for name, rows in tables.items() if rows)
    (output / "results.md").write_text(text + "\n", encoding="utf-8")
    kept = {"in both parts": common, "words": masked, "questions": gains, "tables": tables}
    (output / "results.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with flickr8k/ and vqa_v2/")
    parser.add_argument("--output", type=Path, required=True, help="folder for corpora, runs and results")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=[*PARTS])
    parser.add_argument("--seeds", type=int, default=3, help="of retrieval and words, from 0 on")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    options = parser.parse_args()
    os.environ.setdefault("WORKBENCH_LOG", "WARNING")
    output = options.output.resolve()
    common = prepare(options.data.resolve(), output / "corpora", options.parts)
    if "questions" in options.parts:
        encoders(output)
    numbers = {"retrieval": options.seeds, "words": options.seeds, "questions": FOLDS}
    for part in options.parts:
        arms = [WITH] if part == "retrieval" else [*ARMS]
        cells = [(part, arm, number) for number in range(numbers[part]) for arm in arms]
        in_parallel(partial(work, output), cells, options.jobs)
        publish(options.seeds, common, output)


if __name__ == "__main__":
    main()

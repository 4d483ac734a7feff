"""Vision-language systems at a small budget: the same weights to start from, data, steps and batches.

    OMP_NUM_THREADS=1 python -m benchmarks.vision_results --data data --output vision [--only uniter] [--seeds 2]

`data` has the raw corpora flickr8k, vqa_v2, daquar, nlvr and wikitext2. Every system (`benchmarks.vision_systems`) is
pretrained on flickr8k's captions and cells of a grid of features (vilt on pixels, lxmert also on VQA v2's questions),
and as a control not at all; then it is fine-tuned for retrieval, on VQA v2, on DAQUAR (images held out from its
training part) and on NLVR. Questions are answered once more by a model that was trained without images; retrieval is
scored before fine-tuning too, and with captions given to other images. A seed governs all of a row. Everything is done
by the ordinary commands, which are printed; existing outputs are not made again, and a stopped run continues.

The table (also OUTPUT/results.md) has the mean and the deviation (n - 1) over the seeds; OUTPUT/report.html is the page
of all runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.commands import call
from benchmarks.comparison import Budget, Rows, arguments, drop_weights, publish, read_budget
from benchmarks.result_tables import result_of, spread, step_seconds
from benchmarks.vision_systems import BATCH, GRID, LENGTH, SYSTEMS, WEIGHTS, common, place_of_corpus
from workbench.corpora.corpus import Corpus
from workbench.runs.metrics_file import read_results

TUNING_LR = "5e-5"
TITLE = "Vision-language systems at a small budget"
STATEMENTS = "fields={captions: sentence, labels: [label]}"
DRAWINGS = ("--format", "media-jsonl", "--option", "media_field=images", "--option", STATEMENTS)
"""How the statements of nlvr are read: a drawing each, true or false of it."""
RANKED = 25
"""Images, with five captions each, among which is ranked: every pair goes through the model."""
RETRIEVAL, BLIND = "retrieval", "-blind"


@dataclass(frozen=True)
class Task:
    """The use of a corpus: options of fine-tuning and of evaluation, the reported numbers, whether a blind model is
    asked too."""

    command: str
    corpus: str
    tuning: tuple[str, ...] = ()
    scoring: tuple[str, ...] = ()
    shown: tuple[str, ...] = ("accuracy",)
    blind: bool = False


RECALLS = tuple(f"{way}_retrieval/r{k}" for way in ("image", "text") for k in (1, 5, 10))
TASKS = {
    "retrieval": Task("retrieval", "pairs", scoring=("--limit", str(RANKED)), shown=RECALLS),
    "vqa": Task("vqa", "vqa", ("--min-count", "3"), (), blind=True),
    "daquar": Task("vqa", "daquar", ("--min-count", "3"), ("--limit", "500"), blind=True),
    "nlvr": Task("classify", "nlvr", (), ("--limit", "500")),
}


def prepare(data: Path, corpora: Path) -> None:
    """Everything that is read, by the ordinary commands; what is there already is not made again."""
    plain = corpora / "plain"
    plain.mkdir(parents=True, exist_ok=True)

    def made(place: Path, *command: str | Path) -> None:
        if not place.exists():
            call("prepare", *map(str, command), "--output", str(place))

    made(corpora / "text", "text", data / "wikitext2/valid.txt", "--workers", "1")
    held_out = ("--split", "test=0.2")
    made(plain / "daquar", "image-text", data / "daquar/questions_train.jsonl", *held_out)
    for part, end in (("train", "train"), ("dev", "test")):
        made(plain / f"pairs-{end}", "image-text", data / f"flickr8k/captions_{part}.jsonl")
        made(plain / f"vqa-{end}", "image-text", data / f"vqa_v2/questions_{part}.jsonl")
        made(plain / f"nlvr-{end}", "image-text", data / f"nlvr/{part}.jsonl", *DRAWINGS)
        daquar = plain / ("daquar" if end == "train" else "daquar-test")
        for name, place in {name: plain / f"{name}-{end}" for name in ("pairs", "vqa", "nlvr")}.items():
            made(corpora / f"{name}-{end}", "regions", place, *GRID, *([] if name == "nlvr" else ["--scores"]))
        made(corpora / f"daquar-{end}", "regions", daquar, *GRID)
    made(corpora / "answers.json", "answers", plain / "vqa-train", "--min-count", "3")


def pretrained(name: str, seed: int, steps: int, budget: Budget, output: Path) -> Path:
    """The run that a system is fine-tuned from, made where it is not there."""
    system, corpora = SYSTEMS[name], output / "corpora"
    run = output / "runs" / f"{name}-{steps}-seed-{seed}"
    backbone = str(Corpus.open(str(corpora / "pairs-train")).manifest.about["backbone"])
    alike = common(name, seed, steps, corpora, backbone)
    call("pretrain", system.recipe, *system.overrides, *alike, f"train.precision={budget.precision}", "-o", str(run))
    return run


def rank(name: str, run: Path, output: Path, *more: str) -> None:
    ranked = place_of_corpus(name, "pairs-test", output / "corpora")
    call("evaluate", "retrieval", str(run), str(ranked), *TASKS[RETRIEVAL].scoring, *more)


def cell(name: str, task: str, seed: int, steps: int, budget: Budget, output: Path, blind: bool = False) -> None:
    """The fine-tuned and evaluated run of a system on a set."""
    chosen = TASKS[task]
    train, test = (place_of_corpus(name, f"{chosen.corpus}-{part}", output / "corpora") for part in ("train", "test"))
    run = place_of(name, task, seed, steps, output, blind)
    if run.exists() and read_results(run):
        return
    start = pretrained(name, seed, steps, budget, output)
    own = SYSTEMS[name].compared if task == RETRIEVAL else chosen.tuning
    if task == RETRIEVAL and steps and not own and not read_results(start):
        rank(name, start, output)
    tuned = ("--lr", TUNING_LR, "--batch-size", str(BATCH), "--max-length", str(LENGTH))
    schedule = f"train.lr_schedule={{lr_schedule: linear, warmup_steps: {budget.tuning // 10}}}"
    loop = (
        f"seed={seed}",
        f"name={name}-{steps}-{task}",
        f"train.max_steps={budget.tuning}",
        schedule,
        "train.num_workers=0",
    )
    control = ("--control", "question-only") if blind else ()
    begun = (chosen.command, str(start), str(train), "--output", str(run))
    call("finetune", *begun, *tuned, *own, *control, *loop, f"train.precision={budget.precision}")
    call("evaluate", chosen.command, str(run), str(test), *chosen.scoring)
    if task == RETRIEVAL and steps:
        rank(name, run, output, "--control", "same-features")
    drop_weights(run)


def place_of(name: str, task: str, seed: int, steps: int, output: Path, blind: bool = False) -> Path:
    return output / "runs" / f"{task}{BLIND if blind else ''}-{name}-{steps}-seed-{seed}"


@dataclass(frozen=True)
class Column:
    """A number of the table: of which runs (`{name}`, `{steps}`, `{seed}` in their names) under which control."""

    title: str
    runs: str
    number: str
    control: str | None = None


def columns() -> list[Column]:
    found = []
    for task, of in TASKS.items():
        tuned = f"{task}-{{name}}-{{steps}}-seed-{{seed}}"
        found += [Column(f"{task} {number}", tuned, number) for number in of.shown]
        if of.blind:
            found.append(Column(f"{task}, no image", tuned.replace("-", f"{BLIND}-", 1), of.shown[0]))
        if task == RETRIEVAL:
            found.append(Column("same features, image r10", tuned, RECALLS[2], "same-features"))
            found.append(Column("before fine-tuning, image r10", "{name}-{steps}-seed-{seed}", RECALLS[2]))
    return found


def table(budget: Budget, output: Path) -> Rows:
    """Head and rows: systems, pretrained and not, and baselines below them."""
    asked = columns()
    rows = [["", "steps", "seeds", *(column.title for column in asked), "s/step"]]
    baselines: dict[str, dict[str, str]] = {}
    for name in SYSTEMS:
        for steps in (budget.steps, 0):
            cells, counts = [], set()
            for column in asked:
                runs = (column.runs.format(name=name, steps=steps, seed=seed) for seed in range(budget.seeds))
                found = [one for run in runs if (one := result_of(output / "runs" / run, column.control))]
                counts |= {len(found)} - {0}
                cells.append(spread([one["numbers"][column.number] for one in found]))
                for baseline, values in found[0].get("baselines", {}).items() if found else ():
                    if column.number in values:
                        baselines.setdefault(baseline, {})[column.title] = f"{values[column.number]:.3f}"
            if counts:
                seconds = step_seconds(output / "runs" / f"{name}-{steps}-seed-0") if steps else ""
                rows.append([name, str(steps), "-".join(map(str, sorted(counts))), *cells, seconds])
    return rows + [[name, "", "", *(of.get(each.title, "") for each in asked), ""] for name, of in baselines.items()]


def write_results(budget: Budget, output: Path) -> None:
    """The table as Markdown, and the page of all runs."""
    words = (
        f"Each system starts from {WEIGHTS.partition(':')[2]}, reads {budget.steps} batches of {BATCH} pairs or none, "
        f"and is fine-tuned for {budget.tuning} steps at a rate of {TUNING_LR}; precision of training: "
        f"{budget.precision}. Ranked are {RANKED} images and their captions."
    )
    publish({TITLE: table(budget, output)}, words, sorted((output / "runs").iterdir()), output, TITLE)


def main() -> None:
    options, budget = read_budget(arguments(__doc__, SYSTEMS, TASKS), Budget(300, 1500, 2, "float32"), "tuning-steps")
    output = options.output
    prepare(options.data, output / "corpora")
    for seed in range(budget.seeds):
        for name in options.only:
            for task in options.tasks:
                if task == RETRIEVAL or SYSTEMS[name].answers:
                    for steps in (budget.steps, 0):
                        cell(name, task, seed, steps, budget, output)
                    if TASKS[task].blind:
                        cell(name, task, seed, budget.steps, budget, output, blind=True)
    write_results(budget, output)


if __name__ == "__main__":
    main()

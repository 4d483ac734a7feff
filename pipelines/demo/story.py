"""The demo's story: what was taken away from whom, and what happened. Every sentence is made from the numbers.

A chapter is a title, a table and a few sentences, the same on the terminal and at the head of the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from workbench.report.opening import Chapter

SAME = 0.02
"""Shares that differ by less are called alike."""
NOTHING = "nothing"
TAKEN = {
    "bert": "the graph: it reads text alone",
    "k-bert": NOTHING,
    "k-bert-shuffled-graph": "the graph's truth: its edges are shuffled",
    "k-bert-matrix-off": "the visible matrix: every word sees every triple",
    "ernie-thu": NOTHING,
    "ernie-thu-random-entities": "what the entity vectors know: they are random",
}
PARTS = ("stated", "heldout")
RECALLS = (1, 5, 10)
SIDES = ("image", "text")
ACCURACY = "accuracy"
Rows = list[list[str | int | float]]


@dataclass(frozen=True)
class Found:
    """The summary's evaluations, by what they are asked for."""

    rows: list[dict[str, Any]]

    def row(self, task: str, run: str, corpus: str, control: str | None = None) -> dict[str, Any]:
        """The evaluation of a run on a test set."""
        wanted = (task, run, corpus, control)
        return next(r for r in self.rows if (r["task"], r["run"], r["corpus"], r["control"]) == wanted)

    def has(self, task: str, run: str) -> bool:
        """Whether the run was evaluated in the task."""
        return any((r["task"], r["run"]) == (task, run) for r in self.rows)

    def number(self, task: str, run: str, corpus: str, name: str, control: str | None = None) -> float:
        """One number of the evaluation of a run on a test set."""
        return float(self.row(task, run, corpus, control)["numbers"][name])

    def baselines(self, task: str, corpus: str, runs: list[str]) -> dict[str, Mapping[str, float]]:
        """Baselines by name; one that differs from run to run is named with its run."""
        found: dict[str, dict[str, Mapping[str, float]]] = {}
        for run in runs:
            for name, numbers in self.row(task, run, corpus)["baselines"].items():
                if numbers:
                    found.setdefault(name, {})[run] = numbers
        shown: dict[str, Mapping[str, float]] = {}
        for name, by_run in found.items():
            first, *others = by_run.values()
            if all(numbers == first for numbers in others):
                shown[name] = first
            else:
                shown |= {f"{name}, {run}": numbers for run, numbers in by_run.items()}
        return shown


def chapters(summary: Mapping[str, Any]) -> list[Chapter]:
    """The story of a summary (`pipelines.demo.summary`)."""
    found = Found(summary["evaluations"])
    told = [_whole(summary), _facts(found), _typing(found), _questions(found)]
    return [*told, _retrieval(found, summary["image_retrieval_r1_ceiling"])]


def show(told: list[Chapter], console: Console) -> None:
    """Print the chapters."""
    for chapter in told:
        table = Table(title=chapter.title, title_justify="left", title_style="bold", show_edge=False)
        for number, name in enumerate(chapter.head):
            table.add_column(name, justify="left" if number < 2 else "right", overflow="fold")
        for row in chapter.rows:
            table.add_row(*(f"{v:.3f}" if isinstance(v, float) else escape(str(v)) for v in row))
        console.print()
        console.print(table if chapter.rows else f"[bold]{escape(chapter.title)}[/]")
        for paragraph in chapter.text:
            console.print(paragraph, highlight=False, markup=False)


def _whole(summary: Mapping[str, Any]) -> Chapter:
    minutes, seconds = divmod(round(summary["seconds_in_all"]), 60)
    stages = ", ".join(f"{stage} {spent:.0f}" for stage, spent in summary["core_seconds"].items())
    runs = sum("steps" in run for run in summary["runs"].values())
    text = [
        f"{runs} small models, trained and tested in {minutes} min {seconds} s. Something is taken away "
        "from each idea (a graph beside the text, an image beside the words), and the same test is done again: what "
        "the result loses is what the idea gave.",
        f"That took {sum(summary['core_seconds'].values()):.0f} seconds of one core: {stages}.",
    ]
    return Chapter("What this is", text)


def _facts(found: Found) -> Chapter:
    stated, held_out = ({run: found.number("facts", run, f"facts-{part}", ACCURACY) for run in TAKEN} for part in PARTS)
    rows: Rows = [[run, what, stated[run], held_out[run]] for run, what in TAKEN.items()]
    guesses = [found.baselines("facts", f"facts-{part}", list(TAKEN)) for part in PARTS]
    rows += [[name, "baseline", *(guess[name][ACCURACY] for guess in guesses)] for name in guesses[1]]
    counts = [found.row("facts", "bert", f"facts-{part}")["counts"] for part in PARTS]
    asked = (
        f"In which country does a city lie? The text states it often for {counts[0]['sentences']} cities, which are "
        f"asked for in another wording, and never for {counts[1]['sentences']} others, whose country the graph alone "
        f"has. The table has the share of cities whose country came first among {counts[1]['candidates']}."
    )
    read = (
        f"bert, which has the text alone, knows {_percent(stated['bert'])} of what the text states and "
        f"{_percent(held_out['bert'])} of the held-out facts, where guessing gives "
        f"{_percent(guesses[1]['chance'][ACCURACY])}. k-bert, which reads triples as branches of the sentence, has "
        f"{_percent(stated['k-bert'])} and {_percent(held_out['k-bert'])}."
    )
    taken = (
        "Taken away, on the held-out facts: with the graph's edges shuffled k-bert "
        f"{_moves(held_out['k-bert'], held_out['k-bert-shuffled-graph'])}; with the visible matrix off it "
        f"{_moves(held_out['k-bert'], held_out['k-bert-matrix-off'])}; with random entity vectors ernie-thu "
        f"{_moves(held_out['ernie-thu'], held_out['ernie-thu-random-entities'])}."
    )
    return Chapter("Facts", [asked, read, taken], ["model", "taken away", "stated facts", "held-out facts"], rows)


def _typing(found: Found) -> Chapter:
    task, test, name = "entity-typing", "typing-test", "loose_micro/f1"
    tuned = {run: f"{run}-typing" for run in TAKEN if found.has(task, f"{run}-typing")}
    f1 = {run: found.number(task, folder, test, name) for run, folder in tuned.items()}
    rows: Rows = [[run, TAKEN[run], value] for run, value in f1.items()]
    rows += [[n, "baseline", v[name]] for n, v in found.baselines(task, test, list(tuned.values())).items()]
    text = [
        "What is named in a sentence: a city, a capital, a currency, something in Africa? No entity of the test is in "
        "a sentence of the training set, and edges of the graph that state a type are left out.",
        f"In micro-F1, bert reaches {f1['bert']:.3f}, k-bert {f1['k-bert']:.3f}, ernie-thu {f1['ernie-thu']:.3f}; with "
        f"random entity vectors ernie-thu has {f1['ernie-thu-random-entities']:.3f}.",
    ]
    return Chapter("Types of entities", text, ["model", "taken away", "micro-F1"], rows)


def _questions(found: Found) -> Chapter:
    task, test = "vqa", "easy-vqa-test-grid"
    full, blind = (found.number(task, f"joint-vqa{part}", test, ACCURACY) / 100 for part in ("", "-question-only"))
    rows: Rows = [["joint", NOTHING, full], ["joint", "the image, in fine-tuning and in the test", blind]]
    guesses = found.baselines(task, test, ["joint-vqa"])
    rows += [[name, "baseline", numbers[ACCURACY] / 100] for name, numbers in guesses.items()]
    counts = found.row(task, "joint-vqa", test)["counts"]
    text = (
        f"{counts['questions']:,} questions about the first {counts['images']:,} images of easy-VQA's test split; the "
        f"model reads an image as grid features of a pretrained network. With the image {_percent(full)} are answered "
        f"right; with the question alone the share {_moves(full, blind)}."
    )
    return Chapter("Questions about images", [text], ["model", "taken away", "accuracy"], rows)


def _retrieval(found: Found, ceiling: float) -> Chapter:
    task, test, same = "retrieval", "scenes-heldout-grid", "same-features"
    rows: Rows = []
    for control, what in ((None, NOTHING), (same, "what tells the images apart, in the test")):
        numbers = found.row(task, "joint", test, control)["numbers"]
        rows.append(["joint", what, *_recalls(numbers)])
    rows += [[name, "baseline", *_recalls(v)] for name, v in found.baselines(task, test, ["joint"]).items()]
    rows.append(["best that the captions allow", "baseline", f"{ceiling:.3f}", ""])
    first, after = (found.number(task, "joint", test, "image_retrieval/r1", control) for control in (None, same))
    counts = found.row(task, "joint", test)["counts"]
    text = (
        f"Which of {counts['images']:,} held-out scenes does a caption describe? The right one comes first for "
        f"{_percent(first)} of {counts['texts']:,} captions; no model can have more than {_percent(ceiling)}, since "
        f"some captions fit several scenes. When all scenes get the features of one, the share {_moves(first, after)}: "
        "what is found then is found by a leak, or by chance."
    )
    head = ["model", "taken away", *(f"{side} R@" + "/".join(map(str, RECALLS)) for side in SIDES)]
    return Chapter("Images and captions", [text], head, rows)


def _recalls(numbers: Mapping[str, float]) -> list[str]:
    return [" / ".join(f"{numbers[f'{side}_retrieval/r{k}']:.3f}" for k in RECALLS) for side in SIDES]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _moves(before: float, after: float) -> str:
    if abs(after - before) < SAME:
        return f"stays at {_percent(after)}"
    return f"{'falls' if after < before else 'rises'} from {_percent(before)} to {_percent(after)}"

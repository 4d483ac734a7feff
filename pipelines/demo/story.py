"""The demo's results as text: the ablations and their effects. Every sentence is generated from the numbers.

A chapter is a title, a table and a few sentences. The terminal and the head of the report show the same ones. The first
chapter has the figure (`pipelines.demo.figure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from workbench.report.introduction import Chapter

SAME = 0.02
"""Two shares that differ by less than this are described as equal."""
NOTHING = "nothing"
ABLATED = {
    "bert": "the graph (text only)",
    "k-bert": NOTHING,
    "k-bert-shuffled-graph": "the truth of the graph (edges shuffled)",
    "ernie-thu": NOTHING,
    "ernie-thu-random-entities": "the entity vectors (random ones)",
}
SECTIONS = ("stated", "heldout")
RECALLS = (1, 5, 10)
SIDES = ("image", "text")
ACCURACY = "accuracy"
MAJORITY = "majority answer"
"""The beginning of the names of baselines that answer without the image."""
Rows = list[list[str | int | float]]


@dataclass(frozen=True)
class SummaryNumbers:
    """The evaluations of a summary, by run, task and test set."""

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
        """Baselines by name; a baseline that differs between runs also has the name of its run."""
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


def chapters(summary: Mapping[str, Any], figure: str = "") -> list[Chapter]:
    """The chapters of a summary (`pipelines.demo.summary`); the first one has the figure."""
    found = SummaryNumbers(summary["evaluations"])
    results = [_typing(found), _questions(found), _retrieval(found, summary["image_retrieval_r1_ceiling"])]
    return [replace(_facts(found), figure=figure), *results, _whole(summary)]


def show(reported: list[Chapter], console: Console) -> None:
    """Print the chapters."""
    for chapter in reported:
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
        f"{runs} small models were trained and tested in {minutes} min {seconds} s. Each comparison is an ablation: "
        "one thing is removed (the graph, its truth, the image), and the same test is repeated. The difference "
        "between the two results is the effect of that thing.",
        f"The jobs took {sum(summary['core_seconds'].values()):.0f} seconds of one core: {stages}.",
    ]
    return Chapter("How this was measured", text)


def _facts(found: SummaryNumbers) -> Chapter:
    stated, held_out = (
        {run: found.number("facts", run, f"facts-{part}", ACCURACY) for run in ABLATED} for part in SECTIONS
    )
    rows: Rows = [[run, what, stated[run], held_out[run]] for run, what in ABLATED.items()]
    guesses = [found.baselines("facts", f"facts-{part}", list(ABLATED)) for part in SECTIONS]
    rows += [[name, "baseline", *(guess[name][ACCURACY] for guess in guesses)] for name in guesses[1]]
    counts = [found.row("facts", "bert", f"facts-{part}")["counts"] for part in SECTIONS]
    asked = (
        f"In which country does a city lie? For {counts[0]['sentences']} cities the training text states the country "
        f"often; the test asks in another wording. For {counts[1]['sentences']} other cities only the graph states it "
        f"(held-out facts). The numbers are the share of cities whose country is ranked first among "
        f"{counts[1]['candidates']}."
    )
    read = (
        f"bert has the text only. It recalls {_percent(stated['bert'])} of the stated facts and "
        f"{_percent(held_out['bert'])} of the held-out facts; chance is {_percent(guesses[1]['chance'][ACCURACY])}. "
        f"k-bert reads triples as branches of the sentence. It recalls {_percent(stated['k-bert'])} and "
        f"{_percent(held_out['k-bert'])}."
    )
    ablated = (
        "Ablations, on the held-out facts: with shuffled edges of the graph, k-bert "
        f"{_moves(held_out['k-bert'], held_out['k-bert-shuffled-graph'])}. With random entity vectors, ernie-thu "
        f"{_moves(held_out['ernie-thu'], held_out['ernie-thu-random-entities'])}."
    )
    head = ["model", "ablated", "stated facts", "held-out facts"]
    return Chapter("Facts that only the graph states", [asked, read, ablated], head, rows)


def _typing(found: SummaryNumbers) -> Chapter:
    task, test, name = "entity-typing", "typing-test", "loose_micro/f1"
    tuned = {run: f"{run}-typing" for run in ABLATED if found.has(task, f"{run}-typing")}
    f1 = {run: found.number(task, folder, test, name) for run, folder in tuned.items()}
    rows: Rows = [[run, ABLATED[run], value] for run, value in f1.items()]
    rows += [[n, "baseline", v[name]] for n, v in found.baselines(task, test, list(tuned.values())).items()]
    text = [
        "Which types has the entity of a sentence: city, capital, currency, something in Africa? No entity of the test "
        "occurs in the training set. Edges of the graph that state a type are left out.",
        f"Micro-F1: bert {f1['bert']:.3f}, k-bert {f1['k-bert']:.3f}, ernie-thu {f1['ernie-thu']:.3f}.",
    ]
    return Chapter("Types of entities", text, ["model", "ablated", "micro-F1"], rows)


def _questions(found: SummaryNumbers) -> Chapter:
    task, test = "vqa", "easy-vqa-test-grid"
    rows: Rows = [["joint", NOTHING, found.number(task, "joint-vqa", test, ACCURACY) / 100]]
    guesses = found.baselines(task, test, ["joint-vqa"])
    rows += [[name, "baseline", numbers[ACCURACY] / 100] for name, numbers in guesses.items()]
    blind = max(numbers[ACCURACY] / 100 for name, numbers in guesses.items() if name.startswith(MAJORITY))
    counts = found.row(task, "joint-vqa", test)["counts"]
    text = (
        f"{counts['questions']:,} questions about the first {counts['images']:,} images of easy-VQA's test split. The "
        "model reads an image as grid features of a pretrained network. The majority answer of each type of question "
        f"needs no image; it is right for {_percent(blind)}."
    )
    return Chapter("Questions about images", [text], ["model", "ablated", "accuracy"], rows)


def _retrieval(found: SummaryNumbers, ceiling: float) -> Chapter:
    task, test, same = "retrieval", "scenes-heldout-grid", "same-features"
    rows: Rows = []
    for control, what in ((None, NOTHING), (same, "the differences between images (in the test)")):
        numbers = found.row(task, "joint", test, control)["numbers"]
        rows.append(["joint", what, *_recalls(numbers)])
    rows += [[name, "baseline", *_recalls(v)] for name, v in found.baselines(task, test, ["joint"]).items()]
    rows.append(["best that the captions allow", "baseline", f"{ceiling:.3f}", ""])
    first, after = (found.number(task, "joint", test, "image_retrieval/r1", control) for control in (None, same))
    counts = found.row(task, "joint", test)["counts"]
    text = (
        f"Which of {counts['images']:,} held-out scenes does a caption describe? The right one is ranked first for "
        f"{_percent(first)} of {counts['texts']:,} captions. No model can reach more than {_percent(ceiling)}, because "
        f"some captions fit several scenes. With the same features for all scenes, the share {_moves(first, after)}. "
        "Anything above chance there would be a leak."
    )
    head = ["model", "ablated", *(f"{side} R@" + "/".join(map(str, RECALLS)) for side in SIDES)]
    return Chapter("Images and captions", [text], head, rows)


def _recalls(numbers: Mapping[str, float]) -> list[str]:
    return [" / ".join(f"{numbers[f'{side}_retrieval/r{k}']:.3f}" for k in RECALLS) for side in SIDES]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _moves(before: float, after: float) -> str:
    if abs(after - before) < SAME:
        return f"stays at {_percent(after)}"
    return f"{'falls' if after < before else 'rises'} from {_percent(before)} to {_percent(after)}"

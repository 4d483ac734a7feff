"""The tables and the figure of `benchmarks.few_shot_ner`, read from its runs.

A mean stands with the 95 % interval of t over the seeds. A difference is that of pairs: the same seed, and with it the
same training sentences. Next to its t test over the seeds stands the paired bootstrap over sentences and seeds
(`workbench.metrics.resampling.compared_numbers`).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from scipy import stats

from benchmarks.result_tables import markdown, result_of
from workbench.evaluation.scoring.evaluation_items import EvaluationItems, read_items
from workbench.metrics.resampling import compared_numbers
from workbench.runs.names import EVALUATIONS

GRAPH = "graph"
CONTROLS = (GRAPH, "no-kg", "mentions-only", "permuted-kg")
MEANS = {
    GRAPH: "with Medical.spo",
    "no-kg": "without (no-kg)",
    "mentions-only": "an empty branch at each name (mentions-only)",
    "permuted-kg": "classes permuted (permuted-kg)",
}
COLOURS = {GRAPH: "#1b6e4b", "no-kg": "#8a8a8a", "mentions-only": "#c77f1a", "permuted-kg": "#3f6fb5"}
STEPS = ((GRAPH, "no-kg"), ("mentions-only", "no-kg"), (GRAPH, "mentions-only"), (GRAPH, "permuted-kg"))
"""The reported differences: all of the gain, that of a branch alone, and that of its contents."""
NUMBER, TEST = "f1", "tag-test.jsonl"


class Spread(NamedTuple):
    """The mean of some seeds, its 95 % interval (t), and the deviation (n - 1)."""

    mean: float
    low: float
    high: float
    deviation: float


@dataclass(frozen=True)
class Gain:
    """The mean difference of pairs with its t interval and p value over seeds; interval and p of the paired bootstrap
    over sentences (`items`) and seeds."""

    sentences: int
    first: str
    second: str
    differences: list[float]
    spread: Spread
    p: float
    items: int
    bootstrap: tuple[float, float]
    bootstrap_p: float


def place(size: int, control: str, seed: int, output: Path) -> Path:
    """The run of a cell."""
    return output / "runs" / f"few-{size}-{control}-seed-{seed}"


def numbers(size: int, control: str, seeds: int, output: Path) -> dict[int, float]:
    """F1 by seed, of those that were tested."""
    found = {seed: result_of(place(size, control, seed, output)) for seed in range(seeds)}
    return {seed: float(result["numbers"][NUMBER]) for seed, result in found.items() if result}


def spread_of(values: list[float]) -> Spread:
    mean, deviation = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    half = float(stats.t.ppf(0.975, len(values) - 1)) * deviation / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Spread(mean, mean - half, mean + half, deviation)


def gain(size: int, second: str, first: str, seeds: int, output: Path) -> Gain | None:
    """How much better `second` is than `first`, in pairs; None of fewer than two pairs."""
    one, other = numbers(size, first, seeds, output), numbers(size, second, seeds, output)
    pairs = sorted(one.keys() & other.keys())
    if len(pairs) < 2:
        return None
    differences = [other[seed] - one[seed] for seed in pairs]
    p = float(stats.ttest_1samp(differences, 0.0).pvalue)
    sides = [[_items(place(size, name, seed, output)) for seed in pairs] for name in (first, second)]
    units = sides[0][0].units
    found = compared_numbers(*([items.tallies[NUMBER] for items in side] for side in sides), units)
    items = int(units.max()) + 1
    return Gain(size, first, second, differences, spread_of(differences), p, items, (found.low, found.high), found.p)


def _items(run: Path) -> EvaluationItems:
    return read_items(run / EVALUATIONS / TEST)


def result_table(sizes: Iterable[int], seeds: int, output: Path) -> list[list[str]]:
    """Head and rows: F1 by control and number of sentences."""
    rows = [["fine-tuned", *(f"{size:,} sentences" for size in sizes)]]
    for control in CONTROLS:
        cells = []
        for size in sizes:
            values = list(numbers(size, control, seeds, output).values())
            reported = spread_of(values) if values else None
            few = f" ({len(values)} seeds)" if len(values) < seeds else ""
            cells.append(f"{reported.mean:.3f} ± {reported.deviation:.3f}{few}" if reported else "")
        rows.append([MEANS[control], *cells])
    return rows


def gain_table(gains: Iterable[Gain]) -> list[list[str]]:
    """Head and rows: differences of pairs."""
    head = ["sentences", "difference", "F1", "95 % over seeds (t)", "p", "95 % over sentences and seeds", "p"]
    rows = [head]
    for of in gains:
        interval = f"{of.spread.low:+.3f} to {of.spread.high:+.3f}"
        low, high = of.bootstrap
        reported = [
            f"{of.spread.mean:+.3f}",
            interval,
            f"{of.p:.3f}",
            f"{low:+.3f} to {high:+.3f}",
            f"{of.bootstrap_p:.4f}",
        ]
        rows.append([f"{of.sentences:,}", f"{of.second} less {of.first}", *reported])
    return rows


def draw(sizes: list[int], seeds: int, output: Path) -> None:
    """F1 against sentences, a line for each control, with t intervals over the seeds: OUTPUT/figure.svg and .png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for shift, control in enumerate(CONTROLS):
        points = [(s, [*numbers(s, control, seeds, output).values()]) for s in sorted(sizes)]
        reported = [(s, spread_of(values)) for s, values in points if len(values) > 1]
        x = [s * 1.03 ** (shift - 1.5) for s, _ in reported]  # intervals next to each other
        y = [of.mean for _, of in reported]
        half = [of.high - of.mean for _, of in reported]
        axes.errorbar(x, y, half, color=COLOURS[control], label=MEANS[control], marker="o", markersize=4, capsize=3)
    axes.set(xscale="log", xlabel="training sentences", ylabel="entity F1 on the test part")
    axes.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    for name in ("figure.svg", "figure.png"):
        figure.savefig(output / name, dpi=160, metadata={"Date": None} if name.endswith("svg") else None)


def publish(sizes: list[int], seeds: int, output: Path) -> None:
    """Tables (OUTPUT/results.md, printed too; results.json) and the figure, of what was tested so far."""
    found = [gain(size, *pair, seeds, output) for size in sorted(sizes) for pair in STEPS]
    gains = [one for one in found if one]
    tables = [result_table(sorted(sizes), seeds, output), gain_table(gains)]
    written = "\n\n".join(map(markdown, tables)) + "\n"
    (output / "results.md").write_text(written, encoding="utf-8")
    cells = {c: {str(s): numbers(s, c, seeds, output) for s in sorted(sizes)} for c in CONTROLS}
    reported = {"f1": cells, "differences": [{**asdict(one), "spread": one.spread._asdict()} for one in gains]}
    (output / "results.json").write_text(json.dumps(reported, indent=1), encoding="utf-8")
    print(written, flush=True)
    draw(sizes, seeds, output)

"""The tables and the figure of benchmarks with few training texts and several designs, read from their runs.

A mean stands with the deviation over the seeds. A difference is that of pairs: the same seed, and with it the same
training texts. It has the interval and the p of seeds and test items together
(`workbench.metrics.resampling.compared_numbers`), and next to it the t interval over the seeds alone.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scipy import stats

from benchmarks.result_tables import markdown
from workbench.evaluation.scoring.evaluation_items import EvaluationItems, read_items
from workbench.metrics.resampling import Difference, compared_numbers, units_of
from workbench.runs.names import EVALUATIONS

COLOURS = ("#1b6e4b", "#8a8a8a", "#c77f1a", "#3f6fb5", "#a3455b", "#5b4a8a", "#2b8a8a")
Rows = list[list[str]]


@dataclass(frozen=True)
class Study:
    """The designs that are compared, and in which number.

    Attributes:
        designs: the words of the tables by design, in their order.
        steps: the reported differences, as pairs of designs: the first less the second.
        task, number: of the evaluations that are read; `metric` names the number for people.
        texts: what a training or test item is, in the plural.
        items: what a test item is, where it is something else.
        unit: of an item, by which it is drawn together with others.
    """

    designs: Mapping[str, str]
    steps: tuple[tuple[str, str], ...]
    task: str
    number: str
    metric: str
    texts: str
    items: str | None = None
    unit: Callable[[Mapping[str, Any]], str] = lambda line: str(line["key"])


class Spread(NamedTuple):
    """The mean of some seeds, its 95 % interval (t), and the deviation (n - 1)."""

    mean: float
    low: float
    high: float
    deviation: float


@dataclass(frozen=True)
class Gain:
    """A difference of pairs: of each seed, their spread over the seeds, and over seeds and `items` together."""

    size: int
    first: str
    second: str
    differences: list[float]
    spread: Spread
    items: int
    together: Difference


def place(size: int, design: str, seed: int, output: Path) -> Path:
    """The run of a cell."""
    return output / "runs" / f"few-{size}-{design}-seed-{seed}"


def tested(study: Study, size: int, design: str, seeds: int, output: Path, test: str) -> dict[int, EvaluationItems]:
    """The items of a test part by seed, of the runs that were tested."""
    paths = {s: place(size, design, s, output) / EVALUATIONS / f"{study.task}-{test}.jsonl" for s in range(seeds)}
    return {seed: read_items(path) for seed, path in paths.items() if path.exists()}


def numbers(study: Study, size: int, design: str, seeds: int, output: Path, test: str) -> list[float]:
    """The number of each tested seed."""
    found = tested(study, size, design, seeds, output, test)
    return [items.tallies[study.number].whole for items in found.values()]


def spread_of(values: list[float]) -> Spread:
    mean, deviation = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    half = float(stats.t.ppf(0.975, len(values) - 1)) * deviation / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Spread(mean, mean - half, mean + half, deviation)


def gain(study: Study, size: int, pair: tuple[str, str], seeds: int, output: Path, test: str) -> Gain | None:
    """How much better the first design of a pair is than the second; None of fewer than two seeds."""
    better, worse = (tested(study, size, design, seeds, output, test) for design in pair)
    both = sorted(better.keys() & worse.keys())
    if len(both) < 2:
        return None
    sides = [[side[seed].tallies[study.number] for seed in both] for side in (worse, better)]
    units = units_of([study.unit(line) for line in better[both[0]].lines])
    differences = [high.whole - low.whole for low, high in zip(*sides, strict=True)]
    together = compared_numbers(*sides, units)
    return Gain(size, *pair, differences, spread_of(differences), int(units.max()) + 1, together)


def result_table(study: Study, sizes: Iterable[int], seeds: int, output: Path, test: str) -> Rows:
    """Head and rows: the number by design and number of training texts."""
    rows = [["fine-tuned", *(f"{size:,} {study.texts}" for size in sizes)]]
    for design, words in study.designs.items():
        cells = []
        for size in sizes:
            values = numbers(study, size, design, seeds, output, test)
            few = f" ({len(values)} seeds)" if len(values) < seeds else ""
            spread = spread_of(values) if values else None
            cells.append(f"{spread.mean:.3f} ± {spread.deviation:.3f}{few}" if spread else "")
        rows.append([words, *cells])
    return rows


def gain_table(study: Study, gains: Iterable[Gain]) -> Rows:
    """Head and rows: differences of pairs."""
    both = f"95 % over {study.items or study.texts} and seeds"
    rows = [[study.texts, "difference", study.metric, both, "p", "95 % over seeds (t)"]]
    for of in gains:
        interval = f"{of.together.low:+.3f} to {of.together.high:+.3f}"
        over_seeds = f"{of.spread.low:+.3f} to {of.spread.high:+.3f}"
        p = f"{of.together.p:.4f}" if of.together.p >= 1e-4 else "< 0.0001"
        cells = [f"{of.spread.mean:+.3f}", interval, p, over_seeds]
        rows.append([f"{of.size:,}", f"{of.first} less {of.second}", *cells])
    return rows


def draw(study: Study, sizes: list[int], seeds: int, output: Path, test: str) -> None:
    """The number against training texts, a line for each design, with t intervals over the seeds: OUTPUT/figure.svg
    and .png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for shift, (design, words) in enumerate(study.designs.items()):
        points = [(s, numbers(study, s, design, seeds, output, test)) for s in sorted(sizes)]
        spreads = [(s, spread_of(values)) for s, values in points if len(values) > 1]
        x = [s * 1.03 ** (shift - 1.5) for s, _ in spreads]  # intervals next to each other
        y = [of.mean for _, of in spreads]
        half = [of.high - of.mean for _, of in spreads]
        axes.errorbar(x, y, half, color=COLOURS[shift], label=words, marker="o", markersize=4, capsize=3)
    axes.set(xscale="log", xlabel=f"training {study.texts}", ylabel=study.metric)
    axes.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    for name in ("figure.svg", "figure.png"):
        figure.savefig(output / name, dpi=160, metadata={"Date": None} if name.endswith("svg") else None)


def publish(
    study: Study,
    sizes: list[int],
    seeds: int,
    output: Path,
    tests: Iterable[str] = ("test",),
    more: Iterable[Rows] = (),
) -> None:
    """Tables (OUTPUT/results.md, printed too; results.json) and the figure, of what was tested so far.

    Args:
        tests: the test parts; the first one is drawn.
        more: further tables.
    """
    tables, kept, sizes = list[Rows](), {}, sorted(sizes)
    for test in tests:
        found = [gain(study, size, pair, seeds, output, test) for size in sizes for pair in study.steps]
        gains = [one for one in found if one]
        tables += [result_table(study, sizes, seeds, output, test), gain_table(study, gains)]
        cells = {d: {str(s): numbers(study, s, d, seeds, output, test) for s in sizes} for d in study.designs}
        kept[test] = {study.number: cells, "differences": [asdict(one) for one in gains]}
    written = "\n\n".join(map(markdown, [*tables, *more])) + "\n"
    (output / "results.md").write_text(written, encoding="utf-8")
    (output / "results.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    print(written, flush=True)
    draw(study, sizes, seeds, output, next(iter(tests)))

"""Comparison of two sides on the same items: the difference of each of their numbers, with its interval and p.

A side is a run (or the folder of results of anything else), a result, a file of items (`--predictions`), the table of
several seeds (`NAME-seeds.json`), or several of these, joined by commas: its seeds. `workbench.metrics.resampling`
describes the test of a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_types import Ge, Le
from rich.markup import escape
from rich.table import Table

from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import fetched
from workbench.core.files.urls import url_of
from workbench.core.html_table import html_of
from workbench.evaluation.scoring.evaluation_items import EvaluationItems, read_items
from workbench.metrics.baselines import equalled
from workbench.metrics.resampling import Difference, compared_numbers, units_of
from workbench.metrics.tallies import SHARES, Tally
from workbench.runs.metrics_file import Record, read_json, read_result, results_in
from workbench.runs.names import EVALUATIONS, SEEDS, is_run
from workbench.runs.stored_run import fetched_run

SAMPLES = 10_000
Samples = Annotated[int, Ge(100), Le(1_000_000)]
SHOWN = 3
FEW_SEEDS = 5
TASK = "code of the task"


def local_side(place: str) -> str:
    """The path of a run or a file; that of a URL is fetched."""
    url = url_of(place)
    if url is None:
        return place
    return str(fetched(url) if url.endswith((".json", ".jsonl")) else fetched_run(url))


class EvaluatedItems(NamedTuple):
    """The items of one evaluation: their file, and the result next to it, if there is one."""

    file: Path
    record: Record | None


@dataclass(frozen=True)
class Comparison:
    """The result of `compare` for one task and corpus.

    `differences` has the difference of the two sides by number, over `items` items of `units` records. `reported` lists
    the settings in which the two evaluations differ. `degenerate` lists the sides that predict one label for all items,
    or no better than a baseline: no number of such a comparison has a p.
    """

    task: str
    corpus: str
    first: str
    second: str
    items: int
    units: int
    seeds: tuple[int, int]
    samples: int
    seed: int
    differences: dict[str, Difference]
    reported: list[str] = field(default_factory=list)
    degenerate: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        numbers = {name: difference._asdict() for name, difference in self.differences.items()}
        return {**asdict(self), "seeds": list(self.seeds), "differences": numbers}

    def table(self) -> Table:
        """A row for each number."""
        first, second = self._names()
        of = " on ".join(filter(None, (self.task, self.corpus)))  # files of items alone name no task
        table = Table(title=of or f"{first} and {second}", caption="; ".join(self._caption(first, second)))
        table.add_column("", overflow="fold")
        for column in (first, second, "difference", "95 % interval", "p"):
            table.add_column(escape(column), justify="right", overflow="fold")
        for name, d in self.differences.items():
            interval, p = f"{d.low:+.4g} to {d.high:+.4g}", "" if d.p is None else f"{d.p:.4f}"
            table.add_row(name, f"{d.first:.4g}", f"{d.second:.4g}", f"{d.difference:+.4g}", interval, p)
        return table

    def _repr_html_(self) -> str:
        return html_of(self.table())

    def _names(self) -> list[str]:
        """The sides in a few words: as much of the end of their paths as distinguishes them."""
        seeds = [side.split(",") for side in (self.first, self.second)]
        parts = [Path(each[0]).parts for each in seeds]
        sizes = range(1, max(map(len, parts)) + 1)
        size = next((n for n in sizes if parts[0][-n:] != parts[1][-n:]), 1)
        more = [f" and {len(each) - 1} more" if len(each) > 1 else "" for each in seeds]
        return ["/".join(part[-size:]) + of for part, of in zip(parts, more, strict=True)]

    def _caption(self, first: str, second: str) -> Iterator[str]:
        yield f"the difference is {escape(second)} less {escape(first)}"
        records = "" if self.units == self.items else f" of {self.units:,} records, which are drawn as wholes"
        yield f"{self.items:,} shared items{records}"
        yield f"{self.samples:,} bootstrap samples, seed {self.seed}"
        if max(self.seeds) > 1:
            pairs = "in pairs, in their order" if self.seeds[0] == self.seeds[1] else "each side for itself"
            yield f"means over {self.seeds[0]} and {self.seeds[1]} seeds, {pairs}"
        if max(self.seeds) == 1:
            yield "one seed each: p and the interval do not cover other seeds of training"
        elif min(self.seeds) < FEW_SEEDS:
            yield f"fewer than {FEW_SEEDS} seeds: they say little of how much seeds differ, so take more before a claim"
        yield from map(escape, self.reported)
        if self.degenerate:
            yield escape(f"no p: {'; '.join(self.degenerate)}")


class Comparisons(list[Comparison]):
    """Comparisons, which a notebook shows as tables."""

    def _repr_html_(self) -> str:
        return html_of(*(comparison.table() for comparison in self))


def compare(
    sides: Sequence[str],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    task: str | None = None,
    across_variants: bool = False,
) -> Comparisons:
    """Each other side against the first, on all tasks and corpora that both were evaluated on.

    Args:
        task: of runs, this task's results alone.
        across_variants: also where the variants of a metric differ.

    Raises:
        WorkbenchError: a side is not there, or nothing that it was evaluated on is what the first was: other tasks,
            corpora, items or numbers, which are named.
    """
    read = [_side(side, task) for side in sides]
    found = Comparisons()
    for name, other in zip(sides[1:], read[1:], strict=True):
        for one, two in _matched(sides[0], read[0], name, other):
            found.append(_compared(sides[0], one, name, two, samples, seed, across_variants))
    return found


def _side(side: str, task: str | None) -> list[list[EvaluatedItems]]:
    """The evaluations of a side, each with the items of each of its seeds.

    Raises:
        WorkbenchError: as `compare`.
    """
    places = [Path(part) for part in side.split(",")]
    if len(places) == 1 and places[0].name.endswith(SEEDS):
        return [_of_seeds(places[0])]
    seeds = [[each for each in _evaluated(place) if task in (None, _of(each.record, "task"))] for place in places]
    for place, found in zip(places, seeds, strict=True):
        if not found:
            what = f"no result of the task {task}" if task else "no results"
            raise WorkbenchError(f"{place} has {what} with items; evaluate it: workbench evaluate TASK {place} CORPUS")
    if len(seeds) == 1:
        return [[each] for each in seeds[0]]
    kinds = [{_kind(each.record): each for each in found} for found in seeds]
    shared = [kind for kind in kinds[0] if all(kind in of for of in kinds)]
    if not shared:
        raise WorkbenchError(f"{side}: these have no evaluation in common: {'; '.join(map(_listed, kinds))}")
    return [[of[kind] for of in kinds] for kind in shared]


def _evaluated(place: Path) -> list[EvaluatedItems]:
    """The items that a place has: a file of them, a result, or a run's results under no control of evaluation."""
    if place.is_dir():
        folder = place / EVALUATIONS if is_run(place) else place
        files = sorted(folder.glob("*.json"))
        results = zip(files, results_in(folder, place), strict=True)
        return [EvaluatedItems(of, r) for file, r in results if (of := file.with_suffix(".jsonl")).is_file()]
    if not place.is_file():
        raise WorkbenchError(
            f"there is no {place}; give runs, results (evaluations/NAME.json), files of --predictions, or NAME{SEEDS}"
        )
    if place.suffix == ".json":
        record, items = read_result(place), place.with_suffix(".jsonl")
        if not items.is_file():
            raise WorkbenchError(f"{place} has no items next to it ({items.name}); evaluate again")
        return [EvaluatedItems(items, record)]
    alongside = place.with_suffix(".json")
    return [EvaluatedItems(place, read_result(alongside) if alongside.is_file() else None)]


def _of_seeds(place: Path) -> list[EvaluatedItems]:
    """The results of the runs of a table of seeds, on its corpus and with its options.

    Raises:
        WorkbenchError: it is no such table, or a run has no such result any more.
    """
    table = read_json(place)
    if not isinstance(table, dict) or not isinstance(table.get("runs"), dict):
        raise WorkbenchError(f"{place} is no table of seeds; it is written by `workbench finetune TASK ... --seeds N`")
    wanted = (table.get("task"), Path(str(table.get("corpus"))).name, table.get("options") or {})
    found = []
    for run in map(Path, table["runs"]):
        those = [each for each in _evaluated(run) if each.record and _wanted(each.record) == wanted]
        if not those:
            raise WorkbenchError(
                f"{place}: {run} has no result of {wanted[0]} on {wanted[1]} with items; evaluate it again"
            )
        found.append(those[0])
    return found


def _wanted(record: Record) -> tuple[Any, ...]:
    return (record.get("task"), _corpus(record).name, record.get("options") or {})


def _matched(
    first: str, ours: list[list[EvaluatedItems]], second: str, theirs: list[list[EvaluatedItems]]
) -> Iterator[tuple[list[EvaluatedItems], list[EvaluatedItems]]]:
    """What both were evaluated on; of one evaluation each whatever these are of, so that what differs is named later.

    Raises:
        WorkbenchError: nothing.
    """
    if len(ours) == len(theirs) == 1:
        yield ours[0], theirs[0]
        return
    kinds = [{_kind(each[0].record): each for each in side} for side in (ours, theirs)]
    shared = [kind for kind in kinds[0] if kind in kinds[1]]
    if not shared:
        raise WorkbenchError(
            f"{first} and {second} have no evaluation in common: {_listed(kinds[0])}; {_listed(kinds[1])}. Evaluate "
            "both on one corpus with the same options, or name two results"
        )
    for kind in shared:
        yield kinds[0][kind], kinds[1][kind]


def _kind(record: Record | None) -> tuple[str, ...]:
    """The task, the corpus's checksum and name, control and options of an evaluation."""
    record = record or {}
    corpus = (record.get("inputs") or {}).get("corpus")
    identity = str(corpus.get("sha256")) if isinstance(corpus, dict) else ""
    options = ", ".join(f"{name} {value}" for name, value in sorted((record.get("options") or {}).items()))
    return (str(record.get("task", "")), identity, _corpus(record).name, str(record.get("control") or ""), options)


def _listed(kinds: Iterable[tuple[str, ...]]) -> str:
    return ", ".join(" ".join(filter(None, (k[0], "on", k[2], k[3], k[4]))) for k in kinds)


def _compared(
    first: str,
    ours: list[EvaluatedItems],
    second: str,
    theirs: list[EvaluatedItems],
    samples: int,
    seed: int,
    across: bool,
) -> Comparison:
    warnings = _check_alike(first, ours[0].record, second, theirs[0].record, across)
    for each in (*ours[1:], *theirs[1:]):
        _check_alike(first, ours[0].record, str(each.file), each.record, across)
    items = [[read_items(each.file) for each in side] for side in (ours, theirs)]
    base = items[0][0]
    order = _places(base)
    of_sides: list[list[dict[str, Tally]]] = [
        [_aligned(base, order, ours[0].file, each, of.file) for each, of in zip(side, files, strict=True)]
        for side, files in zip(items, (ours, theirs), strict=True)
    ]
    names = [name for name in base.tallies if all(name in of for side in of_sides for of in side)]
    names = [name for name in names if len({of[name].kind for side in of_sides for of in side}) == 1]
    if not names:
        theirs_names = ", ".join(items[1][0].tallies)
        raise WorkbenchError(
            f"{first} and {second} have no number in common: {', '.join(base.tallies)}; {theirs_names or 'none'}"
        )
    units = units_of([str(line["key"]) for line in base.lines])
    degenerate = [
        said
        for side, files, read in zip((first, second), (ours, theirs), items, strict=True)
        for said in _degenerate(side, files, read)
    ]
    found = {}
    for name in names:
        one, other = ([of[name] for of in side] for side in of_sides)
        difference = compared_numbers(one, other, units, count=samples, seed=seed)
        found[name] = difference._replace(p=None) if degenerate else difference
    record = ours[0].record or theirs[0].record or {}
    return Comparison(
        str(record.get("task", "")),
        _corpus(record).name,
        first,
        second,
        len(base.lines),
        int(units.max()) + 1,
        (len(ours), len(theirs)),
        samples,
        seed,
        found,
        warnings,
        degenerate,
    )


def _degenerate(side: str, files: list[EvaluatedItems], items: list[EvaluationItems]) -> Iterator[str]:
    """Whether every seed of a side predicts one label for all items, or equals a baseline, in words."""
    labels = [each.only_label for each in items]
    if None not in labels:
        yield f"{side} predicts {' or '.join(sorted({repr(label) for label in labels}))} for all items"
    same = [_baselines_equalled(each.record or {}) for each in files]
    if all(same):
        yield f"{side} has the numbers of the baseline {same[0][0]}"


def _baselines_equalled(record: Record) -> list[str]:
    bounds = record.get("bounds") or ()
    rivals = {name: theirs for name, theirs in (record.get("baselines") or {}).items() if name not in bounds}
    return equalled(record.get("numbers") or {}, rivals)


def _check_alike(first: str, ours: Record | None, second: str, theirs: Record | None, across: bool) -> list[str]:
    """The settings in which the two evaluations differ.

    Raises:
        WorkbenchError: the tasks or the corpora differ, or the variants of the metric.
    """
    if ours is None or theirs is None:
        return []
    warnings = []
    for what in ("task", "corpus", TASK, "variant", "control", "options"):
        one, other = (_difference_of(record, what) for record in (ours, theirs))
        if one == other:
            continue
        if what in ("task", "corpus") or (what in ("variant", TASK) and not across):
            how = ", or say --across-variants where the two are meant" if what in ("variant", TASK) else ""
            named = (_corpus(ours), _corpus(theirs)) if what == "corpus" else (repr(one), repr(other))
            raise WorkbenchError(
                f"{first} and {second} are not of one {what}: {named[0]} and {named[1]}; compare what was evaluated "
                f"alike{how}"
            )
        warnings.append(f"{what}: {one or 'none'} and {other or 'none'}")
    return warnings


def _difference_of(record: Record, what: str) -> Any:
    if what == TASK:
        code = ((record.get("inputs") or {}).get("read") or {}).get("task") or {}
        return ", ".join(f"{place} {checksum[:12]}" for place, checksum in sorted(code.items())) or None
    if what != "corpus":
        return record.get(what) or None
    corpus = (record.get("inputs") or {}).get("corpus")
    return corpus.get("sha256") if isinstance(corpus, dict) else corpus


def _places(items: EvaluationItems) -> dict[tuple[str, int], int]:
    """The place of each item by its key and its number among the items of that key."""
    seen: Counter[str] = Counter()
    found = {}
    for place, line in enumerate(items.lines):
        key = _name(line)
        found[key, seen[key]] = place
        seen[key] += 1
    return found


def _aligned(
    base: EvaluationItems, order: dict[tuple[str, int], int], file: Path, items: EvaluationItems, own: Path
) -> dict[str, Tally]:
    """The tallies of items in the order of those of the first side.

    Raises:
        WorkbenchError: they are others, or have other right answers.
    """
    mine = _places(items)
    for one, other, has, lacks in ((order, mine, file, own), (mine, order, own, file)):
        lacking = [key for key, _ in one if (key, _) not in other]
        if lacking:
            some = ", ".join(map(repr, lacking[:SHOWN]))
            raise WorkbenchError(
                f"{has} has {len(lacking):,} items that {lacks} lacks, such as {some}; "
                "compare what was evaluated on the same items (of one corpus, with the same --limit)"
            )
    places = np.array([mine[key] for key in order])
    for ours, place in zip(base.lines, places.tolist(), strict=True):
        if ours.get("gold") != items.lines[place].get("gold"):
            raise WorkbenchError(
                f"{file} and {own} have other right answers to {_name(ours)!r}: {ours.get('gold')!r} and "
                f"{items.lines[place].get('gold')!r}; compare what was evaluated on the same items"
            )
    return {name: _plain(tally, places) for name, tally in items.tallies.items()}


def _plain(tally: Tally, places: np.ndarray) -> Tally:
    """Its items in this order; a share as the mean that it is, as older files of items have it."""
    if tally.kind not in SHARES:
        return Tally(tally.kind, tally.rows[places])
    unit = 100.0 if tally.kind == "percentage" else 1.0
    return Tally("mean", tally.rows[places] * (unit, 1.0))


def _name(line: dict[str, Any]) -> str:
    """An item's key, with the fields that distinguish it from other items of that key."""
    return " ".join(str(line[name]) for name in ("key", "question_id", "query", "relation") if name in line)


def _of(record: Record | None, what: str) -> Any:
    return (record or {}).get(what)


def _corpus(record: Record) -> Path:
    corpus = (record.get("inputs") or {}).get("corpus")
    return Path(str(corpus.get("path", "")) if isinstance(corpus, dict) else str(corpus or ""))

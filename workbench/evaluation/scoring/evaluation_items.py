"""The items of an evaluation: their predictions, and what each adds to the numbers, as lines of JSON.

    {"key": "a-1", "gold": "sport", "prediction": "art", "scores": ..., "adds": {"accuracy": {"share": [0, 1]}}}

`key` is the record's key. Items of one record share it. Items are in the order of the corpus. `adds` has for each
number a row of `workbench.metrics.tallies`, with its kind. So the numbers of any subset of the items can be computed
from the file, as `workbench compare` does. In older files shares have the kind `mean`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import WorkbenchError, shown
from workbench.core.files.drafts import atomic
from workbench.core.files.text_files import parse_json
from workbench.metrics.resampling import Interval, intervals, units_of
from workbench.metrics.tallies import KINDS, OF_ALL, Tally, tally_fault

ADDS = "adds"
WHERE_MADE = "Result.predictions"
"""The object that holds the items, for messages to authors of tasks."""
SCORES = ("score", "scores", "rank", "head_rank", "tail_rank", "nats")
ALIKE = 1e-6
"""Relative tolerance between a number and the total of its items."""


@dataclass
class EvaluationItems:
    """`lines` has the key, the right answer and the prediction of each item, and `tallies` by number what each adds.

    It is iterable and indexable as its lines are.
    """

    lines: list[dict[str, Any]] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.lines)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.lines[number]

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def units(self) -> np.ndarray:
        """The number of each item's record [items]."""
        return units_of([str(line["key"]) for line in self.lines])

    @property
    def only_label(self) -> str | None:
        """The label that is predicted for every item, where the right answers are several: "" where nothing is
        predicted. The labels of a list (the tags of a text) are those of its item."""
        predicted, gold = ({_labels(line.get(what)) for line in self.lines} for what in ("prediction", "gold"))
        few = len(predicted) == 1 and len(gold) > 1
        (labels,) = predicted if few else [None]
        return next(iter(labels), "") if labels is not None and len(labels) < 2 else None

    def check(self, numbers: Mapping[str, float]) -> None:
        """Whether these are items, a row of each tally for each line, that add up to the numbers of a result.

        Raises:
            WorkbenchError: a line has no key or a score that is not finite, a tally has rows of other items, or its
                total is not the number.
        """
        for place, line in enumerate(self.lines):
            if not isinstance(line, dict) or "key" not in line:
                raise WorkbenchError(
                    f"{WHERE_MADE}: line {place + 1} of {len(self.lines):,} has no `key`: {shown(line)}; "
                    'allowed: {"key": the key of its record, "gold": ..., "prediction": ...}'
                )
        odd = [line for line in self.lines if not all(map(math.isfinite, _scores(line)))]
        if odd:
            raise WorkbenchError(
                f"{len(odd):,} of the {len(self.lines):,} items have scores that are NaN or infinite, such as that of "
                f"the key {odd[0]['key']!r}, so no number is computed. Check the weights and the inputs, or evaluate "
                "with --precision float32"
            )
        for name, tally in self.tallies.items():
            rows = tally.rows if isinstance(tally, Tally) else None
            if not isinstance(rows, np.ndarray) or rows.ndim != 2 or tally.kind not in KINDS:
                raise WorkbenchError(
                    f"{WHERE_MADE}: {name!r} is {shown(tally)}; allowed: a workbench.metrics.tallies.Tally with rows "
                    f"[items, figures], of a kind of {', '.join(KINDS)}"
                )
            if len(rows) != len(self.lines):
                raise WorkbenchError(
                    f"{WHERE_MADE}: the tally {name!r} has {len(rows):,} rows, but there are {len(self.lines):,} "
                    f"lines; "
                    "allowed: a row for each line (an item that takes no part has the weight 0)"
                )
            if name not in numbers:
                raise WorkbenchError(
                    f"{WHERE_MADE}: there is a tally {name!r}, but no such number; the result has "
                    f"{', '.join(numbers)}. "
                    "Add the number, or leave the tally out"
                )
            _check_total(name, numbers[name], tally)

    def intervals(self) -> dict[str, Interval]:
        """95 % intervals of the numbers."""
        return intervals(self.tallies, self.units) if self.lines else {}

    def write(self, path: Path) -> None:
        """One line for each item, all of them or no file."""
        with atomic(path) as file:
            file.writelines((json.dumps(line, ensure_ascii=False) + "\n").encode() for line in self._whole())

    def _whole(self) -> Iterator[dict[str, Any]]:
        rows = {name: (tally.kind, tally.rows.tolist()) for name, tally in self.tallies.items()}
        for number, line in enumerate(self.lines):
            part = {name: of for name, of in rows.items() if of[0] in OF_ALL or any(of[1][number])}
            adds = {name: {kind: [_short(x) for x in of[number]]} for name, (kind, of) in part.items()}
            yield {**line, ADDS: adds}


def _scores(line: dict[str, Any]) -> Iterator[float]:
    """The scores and ranks of an item."""
    for name, value in line.items():
        if name in SCORES:
            values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            yield from (each for each in values if isinstance(each, int | float))


def _labels(answer: Any) -> frozenset[str] | None:
    if answer is None:
        return None
    return frozenset(map(str, answer if isinstance(answer, list) else [answer]))


def _check_total(name: str, number: float, tally: Tally) -> None:
    """
    Raises:
        WorkbenchError: the number is not the total of its tally over all items, up to rounding.
    """
    whole = tally.whole
    near = ALIKE if tally.kind in OF_ALL else 1e-12  # correlations are differences of greater sums
    if not math.isclose(number, whole, rel_tol=ALIKE, abs_tol=near):  # NaN is like nothing
        raise WorkbenchError(
            f"{WHERE_MADE}: the number {name!r} is {number:.8g}, but its tally (of the kind {tally.kind}) yields "
            f"{whole:.8g}; "
            "allowed: the same value. Compute both of the same items, or leave the tally out"
        )


def read_items(path: Path) -> EvaluationItems:
    """The items of a file.

    Raises:
        WorkbenchError: it cannot be read, is empty, or has other lines.
    """
    wanted = "lines of JSON as `workbench evaluate TASK ... --predictions FILE` writes them"
    try:
        text = path.read_text(encoding="utf-8")
        lines = [parse_json(line) for line in text.split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise WorkbenchError(f"{path}: cannot be read: {error}; wanted are {wanted}") from error
    if not lines or not all(
        isinstance(line, dict) and "key" in line and isinstance(line.get(ADDS), dict) for line in lines
    ):
        raise WorkbenchError(f"{path} holds no items with a `key` and what each `adds`; wanted are {wanted}")
    names = dict.fromkeys(name for line in lines for name in line[ADDS])
    try:
        tallies = {name: _tally([line[ADDS].get(name) for line in lines]) for name in names}
    except (ValueError, TypeError) as error:
        raise WorkbenchError(f"{path}: `{ADDS}`: {error}; wanted are {wanted}") from error
    return EvaluationItems([{name: value for name, value in line.items() if name != ADDS} for line in lines], tallies)


def _tally(rows: list[Any]) -> Tally:
    """
    Raises:
        ValueError: the rows are of several kinds or lengths, or of one that there is not, or have figures that rows of
            their kind cannot have.
    """
    filled = [row for row in rows if row]
    kinds, sizes = (
        {kind for row in filled for kind in row},
        {len(values) for row in filled for values in row.values()},
    )
    if len(kinds) != 1 or len(sizes) != 1 or not kinds <= set(KINDS):
        raise ValueError(f"found the kinds {', '.join(sorted(kinds))} with rows of {sorted(sizes)} figures")
    (kind,), (size,) = kinds, sizes
    found = np.array([row[kind] if row else [0.0] * size for row in rows], float)
    lacking = np.array([not row for row in rows]) if kind in OF_ALL else np.zeros(len(rows), bool)
    bad = lacking | tally_fault(kind, found)
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"item {first + 1} of {len(rows):,} has {rows[first]}, which no row of the kind {kind} can be")
    return Tally(kind, found)


def _short(value: float) -> float | int:
    """Whole numbers without a point."""
    return int(value) if value == int(value) else value

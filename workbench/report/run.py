"""A run folder as a report reads it: recipe, metrics, evaluations, figures; or a folder of results alone."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic, real_path, write_text
from workbench.core.files.yaml_values import read_yaml
from workbench.core.html_table import html_of
from workbench.core.local_copies import place_of, with_urls
from workbench.runs.metric_tables import HELD_OUT, long_format, step_table
from workbench.runs.metrics_file import Record, read_json, read_metrics, read_results, results_in
from workbench.runs.names import (
    CHECKPOINTS,
    EVALUATIONS,
    FIGURES,
    FROZEN,
    METRICS,
    MODEL,
    MODEL_PIECES,
    RECIPE,
    TABLES,
    inside,
    is_run,
)


@dataclass
class Figure:
    """A drawn figure (PNG) with its title and caption."""

    path: Path
    title: str
    caption: str


@dataclass(repr=False)
class Run:
    """The content of a run folder at the time of reading. `metrics` are the lines of metrics.jsonl, oldest first.

    It can be used as the path of its folder. Vectors, a linker or a pretrained checkpoint have evaluations only.
    """

    name: str
    folder: Path
    recipe: Record
    metrics: list[Record] = field(default_factory=list)
    evaluations: list[Record] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def __repr__(self) -> str:
        step = self.metrics[-1]["step"] if self.metrics else 0
        return f"<Run {place_of(self.folder)}: step {step:,}, {len(self.evaluations)} evaluations>"

    def __fspath__(self) -> str:
        return str(self.folder)

    def series(self, name: str) -> list[tuple[float, float]]:
        """(step, value) of one metric, where it was logged and is finite."""
        found = ((line["step"], line[name]) for line in self.metrics if isinstance(line.get(name), int | float))
        return [(float(step), float(value)) for step, value in found if abs(value) < float("inf")]

    def tidy_metrics(self) -> list[Record]:
        """The metrics in long format, a row for each number: `step`, `split` (training or held-out), `name`, `value`.

        `pandas.DataFrame(run.tidy_metrics())` has no empty cell.
        """
        return long_format(self.metrics)

    def _repr_html_(self) -> str:
        return f"<p>{escape(with_urls(repr(self)))}</p>{html_of(step_table(self.metrics)) if self.metrics else ''}"

    @property
    def control(self) -> str | None:
        """The control of the run's training."""
        return self.recipe.get("control")

    @property
    def corpora(self) -> list[str]:
        """The places of its training corpora."""
        return self._places("corpora")

    @property
    def held_out(self) -> list[str]:
        """The places of its held-out corpora."""
        return self._places("held_out")

    def _places(self, key: str) -> list[str]:
        tasks = self.recipe.get("tasks")
        each = tasks.values() if isinstance(tasks, dict) else ()
        places = (of for task in each if isinstance(task, dict) for of in task.get(key) or ())
        return list(dict.fromkeys(map(str, places)))

    def parameters(self) -> int | None:
        """The number of parameters in its checkpoints, including frozen ones; None if there is no valid checkpoint."""
        steps = (self.folder / CHECKPOINTS).glob("step-*/")
        for step in sorted(steps, key=lambda path: path.name.partition("-")[2].zfill(20), reverse=True):
            weights = [step / MODEL] if (step / MODEL).is_file() else sorted(step.glob(f"{MODEL_PIECES}/*.safetensors"))
            tables = sorted(step.glob(f"{TABLES}/*.safetensors"))
            if weights:
                break
        else:
            return None
        frozen = self.folder / FROZEN
        try:
            files = [inside(self.folder, path) for path in [*weights, *([frozen] if frozen.is_file() else [])]]
            of_tables = (_numbers_in(inside(self.folder, path), ".weight") for path in tables)
            return sum(map(_numbers_in, files)) + sum(of_tables)
        except (SafetensorError, OSError):
            return None

    @property
    def budget(self) -> str:
        """The training budget: steps and samples of each; empty if the recipe does not state it."""
        train = self.recipe.get("train")
        stated = [train.get(name) for name in ("max_steps", "global_batch_size")] if isinstance(train, dict) else []
        known = stated and all(isinstance(value, int) for value in stated)
        return f"{stated[0]:,} steps of {stated[1]:,} samples" if known else ""


def _numbers_in(path: Path, ending: str = "") -> int:
    """The number of values in a safetensors file, of names with this ending; only its header is read."""
    with safe_open(path, framework="np") as file:
        names = [name for name in file.keys() if name.endswith(ending)]  # noqa: SIM118 - it is no mapping
        return sum(math.prod(file.get_slice(name).get_shape()) for name in names)


def load_run(folder: Path) -> Run:
    """Read a run folder, or a folder of results (`evaluate` writes the results of vectors, linkers and
    checkpoints to `evaluations/NAME`).

    Raises:
        WorkbenchError: it is neither, or a file in it cannot be read; the message says which.
    """
    recipe = folder / RECIPE
    if not is_run(folder):
        return _results_alone(folder)
    tree: Any = read_yaml(inside(folder, recipe))
    if not isinstance(tree, dict):
        raise WorkbenchError(f"{recipe}: a recipe is a mapping; found {type(tree).__name__}")
    inside(folder, folder / METRICS)
    return Run(
        name=real_path(folder).name,
        folder=folder,
        recipe={str(key): value for key, value in tree.items()},
        metrics=read_metrics(folder),
        evaluations=read_results(folder),
        figures=[_figure(folder, path) for path in sorted((folder / FIGURES).glob("*.png"))],
    )


def _results_alone(folder: Path) -> Run:
    records = [read_json(inside(folder, path)) for path in folder.glob("*.json")]
    if not any(isinstance(record, dict) and "numbers" in record for record in records):
        below = ", ".join(sorted({str(path.parent) for path in folder.glob("*/*.json")}))
        raise WorkbenchError(
            f"{folder} is not a run: it has no {RECIPE}; nor does it hold results (*.json); give the "
            f"folder that 'pretrain' wrote, or the {EVALUATIONS}/NAME of 'evaluate'{f': {below}' if below else ''}"
        )
    return Run(name=real_path(folder).name, folder=folder, recipe={}, evaluations=results_in(folder))


def listed(record: Record, key: str) -> list[Any]:
    """The list under a key of a recipe or result; [] for any other value."""
    found = record.get(key)
    return found if isinstance(found, list) else []


def loss_names(runs: Sequence[Run]) -> list[str]:
    """The objectives' losses that the runs logged (`mlm/loss`), in training or held out."""
    keys = {key for run in runs for line in run.metrics for key in line if key.endswith("/loss")}
    return sorted({key.removeprefix(HELD_OUT) for key in keys})


def save_figure(figure: Any, run: Path, name: str, title: str, caption: str) -> Path:
    """Write a matplotlib figure to the run's `figures/` with its caption, where `workbench report` finds it."""
    folder = run / FIGURES
    path = folder / f"{name}.png"
    with atomic(path) as file:
        figure.savefig(file, format="png", dpi=200, bbox_inches="tight", facecolor="white")
    write_text(path.with_suffix(".json"), json.dumps({"title": title, "caption": caption}, ensure_ascii=False) + "\n")
    return path


def _figure(folder: Path, path: Path) -> Figure:
    described = inside(folder, path.with_suffix(".json"))
    words = read_json(described) if described.is_file() else {}
    return Figure(inside(folder, path), str(words.get("title", path.stem)), str(words.get("caption", "")))

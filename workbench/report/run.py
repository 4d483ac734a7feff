"""A run folder as a report reads it: recipe, metrics, evaluations, pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.files.drafts import atomic, write_text
from workbench.files.json_values import parse_json
from workbench.files.paths import real_path
from workbench.files.yaml_values import read_yaml
from workbench.runs.metrics import FILE_NAME, Record, read_metrics

HELD_OUT = "held_out/"


@dataclass
class Picture:
    """A drawn picture (PNG) with what it shows."""

    path: Path
    title: str
    caption: str


@dataclass
class Run:
    """What a report shows of a run. `metrics` are the lines of metrics.jsonl, oldest first."""

    name: str
    folder: Path
    recipe: Record
    metrics: list[Record] = field(default_factory=list)
    evaluations: list[Record] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    def series(self, name: str) -> list[tuple[float, float]]:
        """(step, value) of one metric, where it was logged and is finite."""
        found = ((line["step"], line[name]) for line in self.metrics if isinstance(line.get(name), int | float))
        return [(float(step), float(value)) for step, value in found if abs(value) < float("inf")]

    @property
    def control(self) -> str | None:
        """The control that the run was trained under."""
        return self.recipe.get("control")


def load_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        WorkbenchError: it is not a run, or a file in it cannot be read; says which.
    """
    recipe = folder / "recipe.yaml"
    if not recipe.is_file():
        raise WorkbenchError(f"{folder} is not a run: it has no recipe.yaml; give the folder that 'pretrain' wrote")
    tree: Any = read_yaml(inside(folder, recipe))
    if not isinstance(tree, dict):
        raise WorkbenchError(f"{recipe}: a recipe is a mapping; found {type(tree).__name__}")
    inside(folder, folder / FILE_NAME)
    return Run(
        name=real_path(folder).name,
        folder=folder,
        recipe={str(key): value for key, value in tree.items()},
        metrics=read_metrics(folder),
        evaluations=[_evaluation(inside(folder, path)) for path in sorted((folder / "evaluations").glob("*.json"))],
        pictures=[_picture(folder, path) for path in sorted((folder / "pictures").glob("*.png"))],
    )


def inside(folder: Path, path: Path) -> Path:
    """The path, which may name anything in the folder: a run may come from somebody else.

    Raises:
        WorkbenchError: it, or a link on the way, leads out of the folder.
    """
    if not real_path(path).is_relative_to(real_path(folder)):
        raise WorkbenchError(f"{path} is {real_path(path)}, outside of the run folder; put the file itself into it")
    return path


def loss_names(runs: Sequence[Run]) -> list[str]:
    """The objectives' losses that the runs logged (`mlm/loss`), in training or held out."""
    keys = {key for run in runs for line in run.metrics for key in line if key.endswith("/loss")}
    return sorted({key.removeprefix(HELD_OUT) for key in keys})


def save_picture(figure: Any, run: Path, name: str, title: str, caption: str) -> Path:
    """Write a matplotlib figure to the run's `pictures/` with its caption, where `workbench report` finds it."""
    folder = run / "pictures"
    path = folder / f"{name}.png"
    with atomic(path) as file:
        figure.savefig(file, format="png", dpi=200, bbox_inches="tight", facecolor="white")
    write_text(path.with_suffix(".json"), json.dumps({"title": title, "caption": caption}, ensure_ascii=False) + "\n")
    return path


def _evaluation(path: Path) -> Record:
    record = _json(_text(path), str(path))
    if not isinstance(record, dict) or "task" not in record or not isinstance(record.get("numbers"), dict):
        raise WorkbenchError(f"{path}: an evaluation is an object with 'task' and 'numbers'; write it with 'evaluate'")
    return record


def _picture(folder: Path, path: Path) -> Picture:
    described = inside(folder, path.with_suffix(".json"))
    words = _json(_text(described), str(described)) if described.is_file() else {}
    return Picture(inside(folder, path), str(words.get("title", path.stem)), str(words.get("caption", "")))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkbenchError(f"{path}: cannot be read: {error}") from error


def _json(text: str, where: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise WorkbenchError(f"{where}: not valid JSON: {error}") from error

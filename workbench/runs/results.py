"""The results that lie in a run: one JSON object per evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.files.json_values import parse_json
from workbench.runs.names import EVALUATIONS, inside

Record = dict[str, Any]


def read_results(run: Path) -> list[Record]:
    """The results of a run, by file name (`workbench.evaluation.result.Result` says what they hold).

    Raises:
        WorkbenchError: a file that cannot be read, or is no result; names it.
    """
    return results_in(run / EVALUATIONS, run)


def results_in(folder: Path, owner: Path | None = None) -> list[Record]:
    """The results that lie in a folder, by file name.

    Args:
        owner: the folder that they may not lead out of, if another one.

    Raises:
        WorkbenchError: a file that cannot be read, or is no result; names it.
    """
    return [read_result(inside(owner or folder, path)) for path in sorted(folder.glob("*.json"))]


def read_json(path: Path) -> Any:
    """
    Raises:
        WorkbenchError: the file cannot be read, or is not JSON; names it.
    """
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise WorkbenchError(f"{path}: cannot be read: {error}") from error
    except ValueError as error:
        raise WorkbenchError(f"{path}: not valid JSON: {error}") from error


def read_result(path: Path) -> Record:
    """
    Raises:
        WorkbenchError: the file cannot be read, or is no result; names it.
    """
    record = read_json(path)
    if not isinstance(record, dict) or "task" not in record or not isinstance(record.get("numbers"), dict):
        raise WorkbenchError(f"{path}: an evaluation is an object with 'task' and 'numbers'; write it with 'evaluate'")
    return record

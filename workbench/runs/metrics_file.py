"""The files of a run's numbers: metrics.jsonl, a JSON object a line with its step and numbers by name, and the results
in evaluations/, a JSON object each."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json
from workbench.runs.names import EVALUATIONS, METRICS, inside

logger = logging.getLogger(__name__)


START = b'{"step": '
SHOWN = 3
Record = dict[str, Any]


def read_metrics(run: Path) -> list[Record]:
    """The records of a run's metrics.jsonl, oldest first; [] if there is no file.

    A last line that is truncated by a kill is left out; so are damaged lines, with a warning.
    """
    records, damaged = split_lines(run / METRICS)
    if damaged:
        logger.warning("%s: %d damaged lines are left out", run / METRICS, len(damaged))
    return records


def split_lines(path: Path) -> tuple[list[Record], list[bytes]]:
    """The records, and the lines without one. A last line that is truncated by a kill is neither."""
    *lines, rest = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    if _record(rest) is not None or not _is_beginning(rest):
        lines.append(rest)
    found = [(line, _record(line)) for line in lines]
    records = [record for _, record in found if record is not None]
    return records, [line + b"\n" for line, record in found if record is None]


def _record(line: bytes) -> Record | None:
    try:
        record = parse_json(line)
        sound = type(record["step"]) is int and all(isinstance(value, int | float) for value in record.values())
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return record if sound else None


def _is_beginning(line: bytes) -> bool:
    """Whether a line is a truncated record."""
    return START.startswith(line[: len(START)]) and line.isascii() and line.decode().isprintable()


def faults(records: list[Record], logged: int) -> list[str]:
    """The faults in the lines up to a checkpoint. A step has at most one line of training, then one of held-out losses.

    Args:
        logged: the step of the last line of training before the checkpoint; 0 if there was none.
    """
    found = []
    before = (0, True)
    for number, record in enumerate(records, 1):
        place = (record["step"], "lr" not in record)
        if place <= before:
            found.append(f"line {number} is of step {place[0]}, which does not come after step {before[0]}")
        before = place
    if len(found) > SHOWN:
        found[SHOWN:] = [f"and {len(found) - SHOWN} such lines more"]
    last = max((record["step"] for record in records if "lr" in record), default=0)
    if last < logged:
        found.append(f"its lines of training end at step {last}, but there was one of step {logged}")
    return found


def read_results(run: Path) -> list[Record]:
    """The results of a run, by file name (`workbench.evaluation.scoring.result.Result` describes their content).

    Raises:
        WorkbenchError: a file cannot be read, or is not a result; the message names it.
    """
    return results_in(run / EVALUATIONS, run)


def results_in(folder: Path, owner: Path | None = None) -> list[Record]:
    """The results in a folder, by file name.

    Args:
        owner: the folder that the files must be in, if it is another one.

    Raises:
        WorkbenchError: a file cannot be read, or is not a result; the message names it.
    """
    return [read_result(inside(owner or folder, path)) for path in sorted(folder.glob("*.json"))]


def read_json(path: Path) -> Any:
    """The value in a JSON file.

    Raises:
        WorkbenchError: the file cannot be read, or is not JSON; the message names it.
    """
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise WorkbenchError(f"{path}: cannot be read: {error}") from error
    except ValueError as error:
        raise WorkbenchError(f"{path}: not valid JSON: {error}") from error


def read_result(path: Path) -> Record:
    """The result in a JSON file.

    Raises:
        WorkbenchError: the file cannot be read, or is not a result; the message names it.
    """
    record = read_json(path)
    if not isinstance(record, dict) or "task" not in record or not isinstance(record.get("numbers"), dict):
        raise WorkbenchError(f"{path}: an evaluation is an object with 'task' and 'numbers'; write it with 'evaluate'")
    return record

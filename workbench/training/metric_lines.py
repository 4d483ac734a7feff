"""The lines of a run's metrics.jsonl: a JSON object each, with its step and numbers by name."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)
FILE_NAME = "metrics.jsonl"
Record = dict[str, Any]


def read_metrics(run: Path) -> list[Record]:
    """The records of a run's metrics.jsonl, oldest first; [] where there is none.

    A last line that was cut off by a kill is left out, damaged ones with a warning.
    """
    records, damaged = split_lines(run / FILE_NAME)
    if damaged:
        logger.warning("%s: %d damaged lines are left out", run / FILE_NAME, len(damaged))
    return records


def split_lines(path: Path) -> tuple[list[Record], list[bytes]]:
    """The records, and the lines that hold none; a last line without its end is neither."""
    records: list[Record] = []
    damaged: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else []:
        if not line.endswith(b"\n"):
            continue
        try:
            record = json.loads(line)
            sound = type(record["step"]) is int and all(isinstance(value, int | float) for value in record.values())
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            sound = False
        if sound:
            records.append(record)
        else:
            damaged.append(line)
    return records, damaged

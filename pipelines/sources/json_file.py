"""A whole JSON file with lists of rows, as COCO and VQA publish their annotations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.sources.files import open_text_bytes
from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json


def read_json(path: Path) -> dict[str, Any]:
    """The object that the file holds.

    Raises:
        WorkbenchError: not JSON (with line and column), not UTF-8, or not an object.
    """
    with open_text_bytes(path) as handle:
        raw = handle.read()
    try:
        tree = parse_json(raw)
    except UnicodeDecodeError as error:
        raise WorkbenchError(f"{path}: not valid UTF-8 ({error.reason} at byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise WorkbenchError(
            f"{path}: not JSON ({error.msg} at line {error.lineno}, column {error.colno}); is it cut off?"
        ) from error
    if not isinstance(tree, dict):
        raise WorkbenchError(f"{path}: expected a JSON object, found {type(tree).__name__}")
    return tree


def rows_of(tree: dict[str, Any], name: str, path: Path) -> list[Any]:
    """The list under a key, whose elements should be objects (`pipelines.readers.reader.as_object`).

    Raises:
        WorkbenchError: no such key, or something else under it; names the keys there are.
    """
    rows = tree.get(name)
    if not isinstance(rows, list):
        raise WorkbenchError(f"{path}: no list of objects under {name!r}; the file has {', '.join(tree) or 'nothing'}")
    return rows

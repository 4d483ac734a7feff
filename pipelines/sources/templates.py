"""Reads templates: sentences for relations."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipelines.sources.files import decode, lines, plain_suffix
from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json

ALLOWED = (
    'lines of RELATION<tab>TEMPLATE, JSON lines with "relation" and "template" (LAMA\'s), or JSON {relation: template}'
)


def read_templates(path: Path) -> dict[str, str]:
    """The template of each relation, in the order of the file.

    Raises:
        WorkbenchError: no such file, no template in it, a line of another form, or several templates for a relation.
    """
    listed = [(number, decode(raw, f"{path}:{number}")) for number, raw in lines(path)]
    suffix = plain_suffix(path)
    if suffix == ".json":
        found = _mapped(path, "\n".join(text for _, text in listed))
    else:
        read = _row if suffix in (".jsonl", ".ndjson") else _columns
        found = [read(text, f"{path}:{number}") for number, text in listed if text.strip()]
    if not found:
        raise WorkbenchError(f"{path} holds no template; allowed: {ALLOWED}")
    several = [relation for relation, count in Counter(relation for relation, _ in found).items() if count > 1]
    if several:
        templates = [template for relation, template in found if relation == several[0]]
        raise WorkbenchError(
            f"{path}: {len(templates)} templates of the relation {several[0]!r} ({templates[0]!r}, {templates[1]!r}). "
            "A relation has one sentence: keep one, and prepare another corpus with the other"
        )
    return dict(found)


def _mapped(path: Path, text: str) -> list[tuple[str, str]]:
    try:
        tree = parse_json(text)
    except json.JSONDecodeError as error:
        raise WorkbenchError(f"{path}: not JSON ({error.msg} at line {error.lineno})") from error
    if not isinstance(tree, dict):
        raise WorkbenchError(f"{path} is no mapping; allowed: {ALLOWED}")
    return [_checked(relation, template, str(path)) for relation, template in tree.items()]


def _row(text: str, where: str) -> tuple[str, str]:
    try:
        row = parse_json(text)
    except json.JSONDecodeError as error:
        raise WorkbenchError(f"{where}: not JSON ({error.msg} at column {error.colno})") from error
    row = row if isinstance(row, dict) else {}
    return _checked(row.get("relation"), row.get("template"), where)


def _columns(text: str, where: str) -> tuple[str, str]:
    relation, _, template = text.partition("\t")
    return _checked(relation.strip(), template.strip() or None, where)


def _checked(relation: Any, template: Any, where: str) -> tuple[str, str]:
    if not isinstance(relation, str) or not isinstance(template, str) or not relation:
        raise WorkbenchError(f"{where}: no relation with its template; allowed: {ALLOWED}")
    return relation, template

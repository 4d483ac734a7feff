"""The entities of LUKE's published code (Yamada et al., arXiv:2010.01057), by the rows of their table.

`entity_vocab.json` next to the weights has {title: row}. mLUKE's titles are "en:Title", and several share a row.
`entity_vocab.jsonl` has a line {"id": row, "entities": [[title, language], ...], "count"} for each row.
`entity_vocab.tsv` has a line of title and count for each, in the order of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.sources.files import decode, lines, plain_suffix
from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json

ALLOWED = "entity_vocab.json ({title: row}), .jsonl ({id, entities, count}) or .tsv (title, count)"


class LinkedTitle(NamedTuple):
    """A title of a row, its language ("" if there is only one), and its number of links."""

    row: int
    title: str
    language: str
    links: int


def read_entities(path: Path, language: str) -> list[tuple[str, int]]:
    """(title, count) by row, from 0 on; of several titles the one in `language`, else the first.

    Raises:
        WorkbenchError: no such file, another format, a row without a title, or a title of several rows.
    """
    found: dict[int, LinkedTitle] = {}
    for each in _listed(path):
        if each.row not in found or (each.language == language != found[each.row].language):
            found[each.row] = each
    lacking = next((row for row in range(len(found)) if row not in found), None)
    if not found or lacking is not None:
        raise WorkbenchError(
            f"{path}: the row {lacking or 0} has no entity; the rows are numbered from 0 without a gap"
        )
    named = [(each.title, each.links) for _, each in sorted(found.items())]
    if len({title for title, _ in named}) < len(named):
        named = _distinguished(named, [each.language for _, each in sorted(found.items())])
    return named


def _distinguished(named: list[tuple[str, int]], languages: list[str]) -> list[tuple[str, int]]:
    """The titles, unique: later ones that are equal to another get their language as prefix."""
    seen: set[str] = set()
    apart = []
    for row, ((title, count), language) in enumerate(zip(named, languages, strict=True)):
        name = title if title not in seen else f"{language}:{title}" if language else f"{title} ({row})"
        seen.add(name)
        apart.append((name, count))
    return apart


def _listed(path: Path) -> Iterator[LinkedTitle]:
    suffix = plain_suffix(path)
    if suffix == ".json":
        tree = _parsed("\n".join(decode(raw, str(path)) for _, raw in lines(path)), str(path))
        if not isinstance(tree, dict) or not all(isinstance(row, int) for row in tree.values()):
            raise WorkbenchError(f"{path} is no mapping of titles to rows; allowed: {ALLOWED}")
        several = all(":" in title or title.startswith("[") for title in tree)
        for title, row in tree.items():
            language, _, name = title.partition(":") if several and not title.startswith("[") else ("", "", title)
            yield LinkedTitle(row, name, language, 0)
        return
    for number, raw in lines(path):
        text = decode(raw, f"{path}:{number}")
        if not text.strip():
            continue
        if suffix == ".tsv":
            title, _, count = text.partition("\t")
            yield LinkedTitle(number - 1, title, "", int(count) if count.strip().isdigit() else 0)
            continue
        yield from _of_row(_parsed(text, f"{path}:{number}"), f"{path}:{number}")


def _of_row(row: Any, where: str) -> Iterator[LinkedTitle]:
    match row:
        case {"id": int(number), "entities": [_, *_] as titles}:
            count = row.get("count", 0)
            for each in titles:
                match each:
                    case [str(title), str() | None as language]:
                        yield LinkedTitle(number, title, language or "", count if isinstance(count, int) else 0)
                    case _:
                        raise WorkbenchError(f"{where}: {each!r:.60} is no [title, language]; allowed: {ALLOWED}")
        case _:
            raise WorkbenchError(f"{where}: {row!r:.60} is no entity of LUKE; allowed: {ALLOWED}")


def _parsed(text: str, where: str) -> Any:
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise WorkbenchError(f"{where}: not JSON ({error.msg}); allowed: {ALLOWED}") from error

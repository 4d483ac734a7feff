"""The types that a typing model knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json
from workbench.corpora.corpus import Corpus

OPEN_ENTITY = ("entity", "event", "group", "location", "object", "organization", "person", "place", "time")
"""The general types of Choi et al., ACL 2018: what ERNIE-THU and others report as Open Entity."""


def read_inventory(wanted: str | None, corpus: Corpus) -> list[str]:
    """The type names: `open-entity`, a file (one name per line, or a JSON list), names with commas between them, or,
    where nothing is said, every type of the corpus, sorted.

    Raises:
        WorkbenchError: no types, a name twice, or a corpus without any of them.
    """
    found = _types_of(corpus)
    types = sorted(found) if wanted is None else _named(wanted)
    twice = sorted({name for name in types if types.count(name) > 1}) if len(types) != len(set(types)) else []
    if twice:
        raise WorkbenchError(f"the type inventory has {twice[0]!r} twice; name every type once")
    if not found.intersection(types):
        raise WorkbenchError(
            f"no record of corpus {corpus.name!r} has one of the types {', '.join(types[:5]) or 'wanted'}; its types: "
            f"{', '.join(sorted(found)[:5]) or 'none (prepare a typing set: texts with `mention` and `types`)'}"
        )
    return types


def _types_of(corpus: Corpus) -> set[str]:
    return {name for sample in corpus for name in sample.get("types", ())}


def _named(wanted: str) -> list[str]:
    if wanted == "open-entity":
        return list(OPEN_ENTITY)
    path = Path(wanted)
    if not path.is_file():
        names = [name.strip() for name in wanted.split(",")]
        if len(names) == 1:
            raise WorkbenchError(
                f"--types {wanted!r}: there is no such file; allowed: open-entity, a file, or names with commas"
            )
        return [name for name in names if name]
    return names_of_file(path)


def names_of_file(path: Path) -> list[str]:
    """The type names of a file: one per line, or a JSON list.

    Raises:
        WorkbenchError: it is neither.
    """
    try:
        text = path.read_text(encoding="utf-8")
        listed: Any = parse_json(text) if path.suffix == ".json" else text.split("\n")
    except ValueError as error:
        raise WorkbenchError(f"{path} is not a list of type names: {error}") from error
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise WorkbenchError(f"{path} is not a list of type names; write one name per line, or a JSON list of strings")
    return [name.strip() for name in listed if name.strip()]

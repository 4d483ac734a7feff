"""Readers of names and entities: counts, names with entities, spaCy's knowledge bases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.sources.files import decode, lines
from workbench.core.errors import WorkbenchError

HEADER = 16  # bytes of a knowledge base with the number of entities and the length of their vectors
LEAST = 1e-6  # the prior of a candidate without one in a knowledge base


class EntityName(NamedTuple):
    """A name, an entity that it may refer to, and how often it does."""

    name: str
    entity: str
    weight: float


def text_lines(option: str, path: Path) -> list[str]:
    """The lines of a file that an option names.

    Raises:
        WorkbenchError: there is no such file.
    """
    if not path.is_file():
        raise WorkbenchError(f"{option} {path}: there is no such file")
    return [decode(line, f"{path}:{number}") for number, line in lines(path)]


def read_counts(path: Path) -> dict[str, float]:
    """Counts by entity id, from lines `entity<tab>count`.

    Raises:
        WorkbenchError: no such file, or a line of another form; names it.
    """
    counts = {}
    for number, line in enumerate(text_lines("--priors", path), start=1):
        entity, _, count = line.rpartition("\t")
        value = _number(count)
        if not entity or not value >= 0:
            raise WorkbenchError(f"{path}, line {number}: {line[:80]!r} is not ENTITY<tab>COUNT with a count from 0 on")
        counts[entity] = value
    return counts


def read_names(path: Path) -> Iterator[EntityName]:
    """Names from lines `name<tab>entity<tab>count`.

    Raises:
        WorkbenchError: no such file, or a line of another form; names it.
    """
    for number, line in enumerate(text_lines("--names", path), start=1):
        name, entity, count = line.split("\t") if line.count("\t") == 2 else ("", "", "")
        value = _number(count)
        if not name.strip() or not entity or not value > 0:
            raise WorkbenchError(
                f"{path}, line {number}: {line[:80]!r} is not NAME<tab>ENTITY<tab>COUNT with a count greater than 0"
            )
        yield EntityName(name, entity, value)


def read_words(path: Path) -> dict[str, float]:
    """Words with their counts, from lines `word count` separated by white space; further columns are ignored.

    Raises:
        WorkbenchError: no such file, a line of another form (names it), or no word.
    """
    words: dict[str, float] = {}
    for number, line in enumerate(text_lines("--words", path), start=1):
        columns = line.split()
        value = _number(columns[1]) if len(columns) > 1 else math.nan
        if not value > 0:
            raise WorkbenchError(f"{path}, line {number}: {line[:80]!r} is not WORD COUNT with a count greater than 0")
        words[columns[0]] = words.get(columns[0], 0.0) + value
    if not words:
        raise WorkbenchError(f"--words {path}: there is no word in it")
    return words


def read_knowledge_base(folder: Path) -> Iterator[EntityName]:
    """The aliases of a spaCy knowledge base on disk (`InMemoryLookupKB.to_disk`) with their prior probabilities.

    Raises:
        WorkbenchError: there is none in the folder, or it cannot be read.
    """
    from spacy.kb import InMemoryLookupKB
    from spacy.vocab import Vocab

    kept = InMemoryLookupKB(Vocab(), entity_vector_length=1)  # the file has the true length
    contents = folder / "contents"
    if not contents.is_file():
        raise WorkbenchError(
            f"--knowledge-base {folder}: there is no knowledge base (no file 'contents'); give the folder that spaCy's "
            "InMemoryLookupKB.to_disk wrote"
        )
    with contents.open("rb") as file:
        claimed = int.from_bytes(file.read(8), "little")
    if contents.stat().st_size < max(HEADER, 8 * claimed):  # spaCy would take memory for as many entities as it says
        raise WorkbenchError(f"--knowledge-base {folder}: the file 'contents' is damaged or cut off; write it again")
    try:
        kept.from_disk(folder)
    except (OSError, ValueError, KeyError) as error:
        raise WorkbenchError(f"--knowledge-base {folder}: spaCy cannot read it: {error}") from error
    for alias in kept.get_alias_strings():
        for candidate in kept.get_alias_candidates(alias):
            yield EntityName(alias, candidate.entity_, max(candidate.prior_prob, LEAST))


def _number(text: str) -> float:
    """A finite number; raises ValueError for NaN, which cannot be ordered."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan

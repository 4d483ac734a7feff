"""Detects whether a run, or a run that it was started from, was trained on its test set.

It compares the checksum of each corpus in a run's `data.json`, and if that corpus still exists, the raw files that both
were prepared from (their provenance). Splits of one `--split` share raw files and no record, and are not reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.runs.data_record import START, read_data
from workbench.runs.names import is_run

logger = logging.getLogger(__name__)


def training_overlap(run: Path, corpus: Corpus) -> list[str]:
    """Descriptions of how the run, or those that it was started from, was trained on records of a corpus. Empty if no
    overlap is detected."""
    found = []
    for trained, place, identity in _trained_on(run):
        whose = "trained" if trained == run else f"started from {trained}, which was trained"
        if identity == corpus.identity:
            found.append(f"{whose} on this very corpus ({place})")
        elif raw := _same_raw(place, identity, corpus):
            found.append(f"{whose} on {place}, prepared from the same {', '.join(raw)} with another split")
    return list(dict.fromkeys(found))


def warn_overlap(run: Path, corpus: Corpus) -> list[str]:
    """`training_overlap`, also logged as a warning."""
    found = training_overlap(run, corpus)
    for reported in found:
        logger.warning(
            "%s was %s: its numbers on %s measure memorisation. Evaluate on records that are held out (prepare "
            "... --split test=0.1)",
            *(run, reported, corpus.place),
        )
    return found


def _trained_on(run: Path, before: frozenset[Path] = frozenset()) -> Iterator[tuple[Path, str, str]]:
    """The run, the place and the checksum of each corpus of a run and of those that it was started from."""
    if run in before or not is_run(run):
        return
    try:
        read = (read_data(run) or {}).get("read", {})
    except WorkbenchError as error:
        logger.warning("the training data of %s is unknown: %s", run, error)
        return
    for place, identity in read.get("corpus", {}).items():
        yield run, str(place), str(identity)
    for place in read.get(START, {}):
        yield from _trained_on(Path(place), before | {run})


def _same_raw(place: str, identity: str, corpus: Corpus) -> list[str]:
    """The raw files that both were prepared from, unless they belong to one split."""
    try:
        other = Corpus.open(place)
    except WorkbenchError:
        return []  # gone
    if other.identity != identity:
        return []  # another one stands there now
    ours, theirs = _inputs(corpus), _inputs(other)
    splits = [_splits(each.manifest.provenance) for each in (corpus, other)]
    if splits[0] and splits[0] == splits[1] and corpus.place != other.place:
        return []
    return [name for checksum, name in ours.items() if checksum in theirs]


def _inputs(corpus: Corpus) -> dict[str, str]:
    """The names of the records' files by checksum: with images the first one, as several sets share their images."""
    inputs = corpus.manifest.provenance.get("inputs")
    each = [one for one in inputs if isinstance(one, dict) and one.get("sha256")] if isinstance(inputs, list) else []
    return {str(one["sha256"]): str(one.get("name")) for one in (each[:1] if corpus.kind == "image-text" else each)}


def _splits(provenance: dict[str, Any]) -> Any:
    options = provenance.get("options")
    return options.get("splits") if isinstance(options, dict) else None

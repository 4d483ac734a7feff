"""Detects whether a run, or a run that it was started from, was trained on its test set, or chosen by it.

It compares the checksum of each corpus in a run's `data.json`, and if that corpus still exists, the texts or images of
its records and the raw files that both were prepared from (their provenance). Splits of one `--split` share raw files,
and are not reported for them. A run is chosen by the held-out corpora that its `best` checkpoint was the best on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.overlap import shared_records
from workbench.runs.checkpoints import BEST
from workbench.runs.data_record import START, read_data
from workbench.runs.names import is_run

logger = logging.getLogger(__name__)


def training_overlap(run: Path, corpus: Corpus) -> list[str]:
    """Descriptions of how the run, or those that it was started from, saw records of a corpus. Empty if no overlap is
    detected."""
    found = []
    for used, how, place, identity in _used_by(run):
        whose = how if used == run else f"started from {used}, which was {how}"
        if identity == corpus.identity:
            found.append(f"{whose} on this very corpus ({place})")
            continue
        other = _still_at(place, identity)
        if other is None:
            continue
        if raw := _same_raw(other, corpus):
            found.append(f"{whose} on {place}, prepared from the same {', '.join(raw)} with another split")
        elif shared := shared_records(corpus, [other]):
            what = "images" if corpus.kind == "image-text" else "texts"
            found.append(f"{whose} on {place}, which has {shared:,} of its {corpus.records:,} {what}")
    return list(dict.fromkeys(found))


def warn_overlap(run: Path, corpus: Corpus) -> list[str]:
    """`training_overlap`, also logged as a warning."""
    found = training_overlap(run, corpus)
    for reported in found:
        logger.warning(
            "%s was %s: its numbers on %s are too good. Evaluate on records that neither training nor a choice has "
            "seen (prepare ... --split test=0.1)",
            *(run, reported, corpus.place),
        )
    return found


def _used_by(run: Path, before: frozenset[Path] = frozenset()) -> Iterator[tuple[Path, str, str, str]]:
    """The run, the use, the place and the checksum of each corpus of a run and of those that it was started from."""
    if run in before or not is_run(run):
        return
    try:
        record = read_data(run) or {}
    except WorkbenchError as error:
        logger.warning("the training data of %s is unknown: %s", run, error)
        return
    uses = {"read": "trained", "held_out": "chosen as the best"}
    if not (run / BEST).is_dir():
        del uses["held_out"]
    for kind, use in uses.items():
        for place, identity in record.get(kind, {}).get("corpus", {}).items():
            yield run, use, str(place), str(identity)
    for place in record.get("read", {}).get(START, {}):
        yield from _used_by(Path(place), before | {run})


def _still_at(place: str, identity: str) -> Corpus | None:
    """The corpus at a place; None if it is gone, or another one stands there now."""
    try:
        other = Corpus.open(place)
    except WorkbenchError:
        return None
    return other if other.identity == identity else None


def _same_raw(other: Corpus, corpus: Corpus) -> list[str]:
    """The raw files that both were prepared from, unless they belong to one split."""
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

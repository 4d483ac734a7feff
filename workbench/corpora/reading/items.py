"""Items, the unit of order: a record, a window of its text, or one element of one of its lists."""

from __future__ import annotations

import hashlib
import logging
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.core.keyed import digest
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.places import take
from workbench.corpora.schema.schema import units_of
from workbench.sequences.missing_fields import how_to_prepare
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)
OPEN_TABLES = 256
REMEMBERED = 1_000_000
"""The number of records from which window counts are cached on disk (counting takes a microsecond a record)."""


class Stretch(NamedTuple):
    """The position of an item: `start` and `end` count elements of the unit; both are -1 if the item is the record."""

    record: int
    start: int
    end: int


class CorpusItems:
    """The items of a corpus for a unit and a window width.

    Args:
        corpus: the corpus.
        unit: None (an item is a record), `text`, or a list field of the corpus's kind.
        window: width of the windows in characters, for `text` only. Without it a text is one item.

    `counts` [shards] is the number of items of each shard.

    Raises:
        WorkbenchError: the corpus has no such unit, or no items.
    """

    def __init__(self, corpus: Corpus, unit: str | None = None, window: int | None = None) -> None:
        if unit is not None and unit not in units_of(corpus.kind):
            raise WorkbenchError(
                f"corpus {corpus.name!r} is of kind {corpus.kind}, which has no unit {unit!r}; "
                f"allowed: {', '.join(units_of(corpus.kind))}. Does the task's builder fit this corpus? "
                f"To prepare a corpus with {unit}: {how_to_prepare(unit)}"
            )
        if window is not None and window < 1:
            raise WorkbenchError(f"a window has at least 1 character; found {window}")
        self.corpus = corpus
        self.unit = None if unit == "text" and window is None else unit
        self.window = window
        self._table = lru_cache(OPEN_TABLES)(self._load)
        self.counts = self._window_counts() if self.unit == "text" else np.array(self._listed_counts(), np.int64)
        if not self.counts.sum():
            what = f"no {unit} in its {corpus.records} records" if unit else "no records"
            how = f". Prepare it: {how_to_prepare(unit)}" if unit else ""
            raise WorkbenchError(f"corpus {corpus.name!r} ({corpus.place}) is empty: {what}{how}")

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def stretch(self, shard: int, item: int) -> Stretch:
        """The position of an item of a shard."""
        if self.unit is None:
            return Stretch(item, -1, -1)
        record, start, end = self._table(shard)
        return Stretch(int(record[item]), int(start[item]), int(end[item]))

    def runs(self, shard: int) -> np.ndarray:
        """The number of items of each record of a shard [records], for items that are not whole records."""
        return np.bincount(self._table(shard)[0], minlength=self.corpus.shards[shard].records)

    def of_first(self, shard: int, records: int) -> int:
        """The number of items in the first records of a shard."""
        return min(records, int(self.counts[shard])) if self.unit is None else int(self.runs(shard)[:records].sum())

    def goes_on(self, shard: int, item: int) -> bool:
        """Whether an item continues the previous item of the shard, in the text of the same record."""
        return self.stretch(shard, item).start > 0

    def read(self, shard: int, item: int) -> Sample:
        """The sample of an item."""
        if self.unit is None:
            return self.corpus.read(shard, item)
        record, start, end = self.stretch(shard, item)
        return take(self.corpus.read(shard, record), self.unit, start, end)

    def _listed_counts(self) -> list[int]:
        shards = self.corpus.shards
        return [info.lengths.get(self.unit, 0) if self.unit else info.records for info in shards]

    def _window_counts(self) -> np.ndarray:
        """The windows of each shard, counted in every index; cached on disk if there are many records."""
        shards = self.corpus.shards
        if self.corpus.records < REMEMBERED:
            with self.corpus.all_indexes():
                return np.array([len(self._table(shard)[0]) for shard in range(len(shards))], np.int64)
        name = f"{digest('windows', self.window or 0, *(info.index_sha256 for info in shards)):032x}"
        path = self.corpus.cache / "windows" / name
        known = _read_counts(path)
        if known is not None:
            return known
        with self.corpus.all_indexes():
            counts = np.array([len(self._load(shard)[0]) for shard in range(len(shards))], np.int64)
        try:
            with atomic(path) as file:
                file.write(hashlib.sha256(counts.tobytes()).digest() + counts.tobytes())
        except WorkbenchError as error:
            logger.warning("the windows of %s will be counted again next time: %s", self.corpus.name, error)
        return counts

    def _load(self, shard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert self.unit is not None
        return self.corpus.index(shard).items(self.unit, self.window)

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k != "_table"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._table = lru_cache(OPEN_TABLES)(self._load)


def _read_counts(path: Path) -> np.ndarray | None:
    """The counts at `path`, with a checksum; None if the file is missing or damaged."""
    if not path.is_file():
        return None
    data = path.read_bytes()
    return np.frombuffer(data[32:], np.int64) if hashlib.sha256(data[32:]).digest() == data[:32] else None

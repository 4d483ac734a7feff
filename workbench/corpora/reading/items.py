"""Items, the unit of order: a record, a window of its text, or one element of one of its lists."""

from __future__ import annotations

import hashlib
import logging
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.core.keyed import digest
from workbench.corpora.corpus import Corpus
from workbench.corpora.reading.item_table import ItemTable, kept_table
from workbench.corpora.schema.places import take
from workbench.corpora.schema.schema import units_of
from workbench.sequences.missing_fields import how_to_prepare
from workbench.sequences.sequence import SIBLINGS, Sample

if TYPE_CHECKING:
    from workbench.core.processes.distributed import World

logger = logging.getLogger(__name__)
OPEN_TABLES = 256
REMEMBERED = 100_000
"""The number of records from which window counts are cached on disk (counting takes a microsecond a record)."""
OPENING = 500
"""The number of records that are counted in the time in which an index is opened."""


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
        world: ranks that all make these items; each counts the windows of a share of the shards.

    `counts` [shards] is the number of items of each shard.

    Raises:
        WorkbenchError: the corpus has no such unit, or no items.
    """

    def __init__(
        self, corpus: Corpus, unit: str | None = None, window: int | None = None, world: World | None = None
    ) -> None:
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
        self.counts = self._window_counts(world) if self.unit == "text" else np.array(self._listed_counts(), np.int64)
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
        return Stretch(*self._table(shard).stretch(item))

    def runs(self, shard: int) -> np.ndarray:
        """The number of items of each record of a shard [records], for items that are not whole records."""
        return self._table(shard).runs

    def of_first(self, shard: int, records: int) -> int:
        """The number of items in the first records of a shard."""
        return min(records, int(self.counts[shard])) if self.unit is None else int(self.runs(shard)[:records].sum())

    def resumes(self, shard: int, item: int) -> bool:
        """Whether an item continues the previous item of the shard, in the text of the same record."""
        return self.stretch(shard, item).start > 0

    def read(self, shard: int, item: int) -> Sample:
        """The sample of an item; one that is an element of a list has the whole list as `siblings`."""
        if self.unit is None:
            return self.corpus.read(shard, item)
        number, start, end = self.stretch(shard, item)
        record = self.corpus.read(shard, number)
        sample = take(record, self.unit, start, end)
        return sample if self.unit == "text" else {**sample, SIBLINGS: record.get(self.unit, [])}

    def _listed_counts(self) -> list[int]:
        shards = self.corpus.shards
        return [info.lengths.get(self.unit, 0) if self.unit else info.records for info in shards]

    def _window_counts(self, world: World | None) -> np.ndarray:
        """The windows of each shard. If counting takes long, the ranks share it, and the counts are cached on disk."""
        shards = self.corpus.shards
        name = f"{digest('windows', self.window or 0, *(info.index_sha256 for info in shards)):032x}"
        path = self.corpus.cache / "windows" / name
        slow = self.corpus.records + OPENING * len(shards) >= REMEMBERED
        known = _read_counts(path, len(shards)) if slow else None
        ranks = [(name, known is not None)] if world is None else world.gather((name, known is not None))
        if known is not None and all(knows for _, knows in ranks):
            return known
        if not slow or world is None or any(other != name for other, _ in ranks):  # other data is refused later
            counts = self._counted(range(len(shards))) if known is None else known
        else:
            counts = world.from_shares(len(shards), partial(self._counted, known=known), np.concatenate)
        if slow and known is None:
            try:
                with atomic(path) as file:
                    file.write(hashlib.sha256(counts.tobytes()).digest() + counts.tobytes())
            except WorkbenchError as error:
                logger.warning("the windows of %s will be counted again next time: %s", self.corpus.name, error)
        return counts

    def _counted(self, shards: range, known: np.ndarray | None = None) -> np.ndarray:
        if known is not None:
            return known[shards.start : shards.stop]
        with self.corpus.indexes_of(shards):
            return np.array([self._table(shard).items for shard in shards], np.int64)

    def _load(self, shard: int) -> ItemTable:
        assert self.unit is not None
        if self.unit != "text":
            return ItemTable(self.corpus.index(shard).elements(self.unit))
        assert self.window is not None
        width = self.window
        name = f"{digest('table', width, self.corpus.shards[shard].index_sha256):032x}"
        path = self.corpus.cache / "windows" / name
        return kept_table(path, lambda: self.corpus.index(shard).windows(width))

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k != "_table"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._table = lru_cache(OPEN_TABLES)(self._load)


def _read_counts(path: Path, shards: int) -> np.ndarray | None:
    """The counts at `path`, with a checksum; None if the file is missing or damaged."""
    if not path.is_file():
        return None
    data = path.read_bytes()
    whole = hashlib.sha256(data[32:]).digest() == data[:32] and len(data) == 32 + 8 * shards
    return np.frombuffer(data[32:], np.int64) if whole else None

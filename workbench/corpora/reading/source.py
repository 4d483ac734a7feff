"""Reading the samples at places, and counting the samples that cannot be read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draw
from workbench.corpora.corpus import Corpus
from workbench.corpora.reading.items import CorpusItems
from workbench.corpora.shards.record import BadRecordError
from workbench.sequences.sequence import Sample, Slot

if TYPE_CHECKING:
    from workbench.core.processes.distributed import World

logger = logging.getLogger(__name__)
OnError = Literal["stop", "skip"]


class SamplePlace(NamedTuple):
    """The place of a draw: corpus, shard, item in the shard. `draw` is (corpus, epoch, index in the epoch's order), or
    (corpus, epoch, shard, item) if an item's draws repeat in a later epoch.

    `slot` exists in continuous order only.
    """

    corpus: int
    shard: int
    item: int
    draw: Draw
    slot: Slot | None = None


class SampleSource:
    """Reads the samples at places; counts the samples that cannot be read.

    Args:
        unit, window, world: see `CorpusItems`.
        on_error, limit: see `Reader`.
    """

    def __init__(
        self,
        corpora: Sequence[Corpus],
        unit: str | None,
        window: int | None,
        on_error: OnError,
        limit: int,
        world: World | None = None,
    ) -> None:
        if not corpora:
            raise WorkbenchError("there is no corpus to read: name at least one")
        self.items = [CorpusItems(corpus, unit, window, world) for corpus in corpora]
        self.on_error, self.limit = on_error, limit
        self.skipped: Counter[str] = Counter()

    def check_continuous(self) -> None:
        """Check that continuous order is possible.

        Raises:
            WorkbenchError: the items are not windows of texts.
        """
        for items in self.items:
            if items.unit != "text":
                unit = f"elements of {items.unit}" if items.unit else "whole records"
                raise WorkbenchError(
                    f"order: continuous reads texts window after window, but the task's builder reads {unit} of corpus "
                    f"{items.corpus.name!r}; choose a builder of windows (document), or order: shuffled"
                )

    def read(self, places: Sequence[SamplePlace]) -> list[Sample]:
        samples = []
        for corpus, shard, item, draw, slot in places:
            try:
                sample = self.items[corpus].read(shard, item)
            except BadRecordError as error:
                self.skip(error, error.reason)
                continue
            sample["draw"] = draw
            if slot is not None:
                sample["slot"] = slot
            samples.append(sample)
        return samples

    def wrong_sizes(self) -> list[str]:
        return [found for items in self.items for found in items.corpus.wrong_sizes()]

    def skip(self, error: WorkbenchError, reason: str) -> None:
        """Count a sample that cannot be used. Raises `error` itself if samples must not be skipped."""
        if self.on_error == "stop":
            raise error
        self.skipped[reason] += 1
        logger.warning("skipped a sample: %s", error)
        if self.skipped.total() > self.limit:
            counts = ", ".join(f"{n} x {reason}" for reason, n in self.skipped.most_common())
            raise WorkbenchError(
                f"more than {self.limit} samples could not be read ({counts}); the last: {error}. "
                "Run `workbench verify` on the corpus and fix it, or allow more (train.skip_limit)"
            ) from error

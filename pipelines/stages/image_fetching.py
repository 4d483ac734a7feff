"""Images of URLs: fetched, checked and made smaller, many at once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from threading import BoundedSemaphore

from pipelines.readers.reader import Drop
from pipelines.sources.web import Manners, NotFetchedError, web
from pipelines.stages.media_checks import CheckImage
from workbench.core.options.bounds import Connections, Count
from workbench.core.processes.children import cores
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class FetchImages:
    """Gives samples without an image that of `meta.url`, as `check` stores it; drops those that cannot be had.

    How it is asked for decides nothing but which images are there in the end, so work that was begun in one way may go
    on in another. `connections` are open at once, `batch_size` samples under way: as many as a shard has, as a slow
    machine then keeps no other image waiting but at the shard's end.
    """

    check: CheckImage
    manners: Manners = field(default_factory=Manners, compare=False)
    connections: Connections = field(default=64, compare=False)
    batch_size: Count = field(default=1_000, compare=False)

    def __call__(self, sample: Sample) -> Sample | Drop:
        return self.batch([sample])[0]

    def batch(self, samples: Sequence[Sample]) -> list[Sample | Drop]:
        """The samples with their images."""
        with ThreadPoolExecutor(min(self.connections, len(samples))) as threads:
            return list(threads.map(self._one, samples))

    def _one(self, sample: Sample) -> Sample | Drop:
        url = sample.get("meta", {}).get("url")
        if "image" in sample or url is None:
            return sample
        try:
            data = web(self.manners).get(url)
        except NotFetchedError as error:
            return Drop(error.reason)
        meta = {**sample["meta"], "sha256": hashlib.sha256(data).hexdigest()}
        with _decoders():  # decoded images are large, and more threads than cores are not faster
            return self.check({**sample, "image": data, "meta": meta})


@cache
def _decoders() -> BoundedSemaphore:
    return BoundedSemaphore(cores())

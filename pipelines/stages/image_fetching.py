"""The stage that fetches, checks and resizes images of URLs, many at once."""

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
    """Adds the image of `meta.url` to samples without one, as `check` stores it; drops samples whose fetch fails.

    The options of fetching decide only which images arrive in the end, so that work may resume with other ones.
    `connections` are open at once, and `batch_size` samples are in progress: as many as a shard has. So a slow host
    delays other images only at the shard's end.
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
        with _decoders():  # decoded images are large; more threads than cores are not faster
            return self.check({**sample, "image": data, "meta": meta})


@cache
def _decoders() -> BoundedSemaphore:
    return BoundedSemaphore(cores())

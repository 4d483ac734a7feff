"""The stage that adds the visual tokens of clips."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vision.video.clip_vocabulary import Vocabulary
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location, Name
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class QuantizedClips:
    """Adds `clips.codes` [n] and `meta.codes`, the `identity` of the vocabulary in the file `place`.

    Raises:
        WorkbenchError: a record has no clips, or clips of another backbone than the vocabulary's.
    """

    place: Location
    identity: Name

    def __call__(self, sample: Sample) -> Sample:
        if "clips" not in sample:
            raise missing(sample, "clips")
        vocabulary, meta = _opened(self.place), sample.get("meta", {})
        if meta.get("backbone") != vocabulary.backbone:
            raise WorkbenchError(
                f"video {sample['key']!r}: its clips have the backbone {meta.get('backbone')!r}, the vocabulary has "
                f"{vocabulary.backbone!r}; cluster these clips with `workbench prepare clip-vocabulary`"
            )
        codes = vocabulary(sample["clips"]["features"])
        return {**sample, "clips": {**sample["clips"], "codes": codes}, "meta": {**meta, "codes": self.identity}}


@lru_cache(maxsize=1)
def _opened(place: str) -> Vocabulary:
    return Vocabulary.open(Path(place))

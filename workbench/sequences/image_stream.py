"""The image stream of builders of texts with images, and the controls that ablate the image."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.components.building import build
from workbench.components.calls import call
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields, Sample, row_count
from workbench.sequences.sequence_checks import FIELDS

QUESTION_ONLY, SHUFFLED_CAPTIONS, SAME_FEATURES = "question-only", "shuffled-captions", "same-features"
NO_PARTNER = "no other image to take captions from"


class ImageStream:
    """Makes the `image` stream of a sample with the image processor of the recipe.

    Args:
        spec: the image processor, by import path with its options; None where the recipe has no images.
        control: under `question-only` there is no image stream.
        media: names of the sample's media, each an image: the rows of all of them are the stream, one image behind
            the other, with the number of the image, from 0, in the field `image_number` (UNITER's pairs and triplets,
            arXiv:1909.11740, section 4). None: the sample's one image, without the field.
        stream: the name of the stream (`video`: its rows are clips).

    `evaluating` returns one without augmentation: the image processor gets no generator, and consecutive samples with
    the same image share its stream.
    """

    def __init__(
        self,
        spec: str | dict[str, Any] | None,
        control: str | None = None,
        media: Sequence[str] | None = None,
        stream: str = "image",
    ) -> None:
        if media is not None and len(set(media)) != len(media):
            raise WorkbenchError(f"media = {', '.join(media)}: a name occurs twice; name each medium once")
        wanted = spec is not None and control != QUESTION_ONLY
        self.part: ImageProcessor | None = build("image_processor", spec, "image_processor") if wanted else None  # type: ignore[arg-type]
        self.augment = True
        self.media = media
        self.stream = stream
        self.images = len(media or "1")
        self._last: tuple[Sample, Fields] | None = None
        self._same = False

    def evaluating(self) -> ImageStream:
        """The same images without augmentation."""
        other = copy.copy(self)
        other.augment, other._last = False, None
        return other

    def all_like(self, sample: Sample) -> ImageStream:
        """An image stream that returns the stream of the given sample for every sample: the control `same-features`."""
        other = self.evaluating()
        other.streams(sample, np.random.default_rng(0))
        other._same = True
        return other

    def streams(self, sample: Sample, rng: np.random.Generator) -> dict[str, Fields]:
        """`{"image": ...}` (or the stream's name), or nothing."""
        if self.part is None:
            return {}
        if self.augment:
            return {self.stream: self._fields(self.part, sample, rng)}
        if self._last is None or (self._last[0] is not sample and not self._same):
            self._last = (sample, self._fields(self.part, sample, None))
        return {self.stream: dict(self._last[1])}

    def _fields(self, part: ImageProcessor, sample: Sample, rng: np.random.Generator | None) -> Fields:
        if self.media is None:
            return call(part, "", FIELDS, sample, rng)
        made = [call(part, "", FIELDS, each, rng) for each in _image_rows(sample, self.media)]
        joined: Fields = {name: np.concatenate([fields[name] for fields in made]) for name in made[0]}
        return {**joined, "image_number": np.repeat(np.arange(len(made)), [row_count(fields) for fields in made])}


def _image_rows(sample: Sample, media: Sequence[str]) -> list[Sample]:
    """A sample for each of the media, with it as `image`, its own rows of stored `regions`, and its name as
    `medium`."""
    found = sample.get("media", {})
    for name in media:
        if name not in found:
            raise _lacking(sample, name, sorted(found))
    rest = {name: value for name, value in sample.items() if name not in ("media", "regions")}
    return [{**rest, "image": found[name], "medium": name, **_own_regions(sample, name)} for name in media]


def _lacking(sample: Sample, name: str, found: list[str]) -> BadValueError:
    """The error for a sample without one of the media that the builder reads."""
    where = f"sample {sample.get('key', '?')!r} of corpus {sample.get('corpus', '?')!r}"
    has = f"the media {', '.join(found)}; name those to be read" if found else "no media; leave them out"
    detail = f"it has no medium {name!r}; this one has {has}: `media` of the sequence builder, --media of a fine-tuning"
    return BadValueError(where, detail, sample.get("draw"), f"no medium {name}")


def _own_regions(sample: Sample, medium: str) -> Sample:
    """The stored regions of one of the media, where the record has some."""
    stored = sample.get("regions", {})
    if "medium" not in stored or medium not in stored["medium"]:
        return {}
    own = stored["medium"] == medium
    return {"regions": {name: values[own] for name, values in stored.items() if name != "medium"}}


def shuffled_captions(samples: list[Sample], draws: Draws) -> tuple[list[Sample], int]:
    """Every sample with the captions of a sample of another image, drawn by a permutation of the micro-batch.

    Samples of one image (of one key) are rotated past each other as a block, so that none gets its own image's
    captions. Where one image has more than half of the samples this is impossible: the remaining ones are left out.

    Returns:
        the samples in their order, and the number of those left out.
    """
    images: dict[tuple[str, str], list[int]] = {}
    for i, sample in enumerate(samples):
        images.setdefault((str(sample.get("corpus")), str(sample.get("key"))), []).append(i)
    groups = list(images.values())
    order = [i for g in draws.batch.permutation(len(groups)).tolist() for i in groups[g]]
    step = max(map(len, groups), default=0)
    giver = {taker: order[(place + step) % len(order)] for place, taker in enumerate(order)}
    shuffled = []
    for i, sample in enumerate(samples):
        other = samples[giver[i]]
        if other["key"] == sample["key"] and other.get("corpus") == sample.get("corpus"):
            continue
        borrowed = {name: other[name] for name in ("captions", "caption_spans") if name in other}
        kept = {name: value for name, value in sample.items() if name not in ("captions", "caption_spans")}
        shuffled.append({**kept, **borrowed})
    return shuffled, len(samples) - len(shuffled)

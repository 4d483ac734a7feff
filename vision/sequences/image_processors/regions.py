"""Stored features of an image's regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from vision.images.boxes import WHOLE, check_boxes
from vision.images.decoding import place
from vision.sequences.region_targets import TARGETS
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.options.bounds import Count, Name
from workbench.sequences.missing_fields import missing
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields, Sample


class RegionsProcessor(ImageProcessor):
    """Precomputed features of the `max_regions` most confident regions of an image.

    A model that was trained on the features of one backbone is useless on those of another, and no other check would
    find that, so `backbone` is compared with that of the corpus (`meta.backbone`). The detector's stored outputs
    (`vision.sequences.region_targets`) come with the regions, and the `number` of each among all of the record.

    Args:
        backbone: the extractor of the features in the corpus; `null` in a recipe: that of the task's corpus.
        max_regions: the largest number of regions, the most confident ones.
        whole: a row for the image as a whole comes before the regions (`first`; ViLBERT) or after them (`last`;
        VL-BERT): the
            mean of their features. No objective hides it or predicts it.
    """

    reads = ("regions",)
    of_corpora: ClassVar[Mapping[str, str]] = {"backbone": "backbone"}

    def __init__(self, backbone: Name, max_regions: Count = 100, whole: Literal["first", "last"] | None = None) -> None:
        self.backbone = backbone
        self.max_regions = max_regions
        self.whole = whole

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        where = place(sample)
        if "regions" not in sample:
            raise missing(sample, "regions")
        if "medium" in sample["regions"]:
            media = sorted(set(sample["regions"]["medium"].tolist()))
            raise WorkbenchError(
                f"{where}: its regions are of named media ({', '.join(media)}), not of one image; name those to read: "
                f"media: [{', '.join(media)}] in the sequence builder, or --media in fine-tuning"
            )
        found = sample.get("meta", {}).get("backbone")
        if found != self.backbone:
            raise WorkbenchError(
                f"{where}: the features are of backbone {found!r}, but this model needs those of {self.backbone!r}. "
                "Extract the corpus again with that backbone, or train a model on this one"
            )
        return self._fields(sample["regions"], where)

    def _fields(self, regions: Fields, where: str) -> Fields:
        try:
            check_boxes(regions)
        except ValueError as error:
            raise BadValueError(where, str(error), regions, "unusable region boxes") from error
        keep: slice | np.ndarray = slice(self.max_regions)
        if "confidence" in regions and len(regions["confidence"]) > self.max_regions:
            keep = np.sort(np.argsort(-regions["confidence"], kind="stable")[: self.max_regions])
        said = {name: regions[name][keep].copy() for name in TARGETS if name in regions}
        return self._with_whole(
            {
                "features": regions["features"][keep].copy(),  # in the stored type: half the bytes to copy
                "boxes": np.array(regions["boxes"][keep], np.float32),
                "number": np.arange(len(regions["boxes"]))[keep],
                **said,
            }
        )

    def _with_whole(self, fields: Fields) -> Fields:
        if self.whole is None:
            return fields
        mean = fields["features"].mean(0, dtype=np.float32) if len(fields["features"]) else 0
        rows = {name: np.zeros_like(values, shape=(1, *values.shape[1:])) for name, values in fields.items()}
        rows["features"][:], rows["boxes"][:] = mean, WHOLE
        rows["special"] = np.ones(1, np.bool_)
        fields["special"] = np.zeros(len(fields["boxes"]), np.bool_)
        order = (rows, fields) if self.whole == "first" else (fields, rows)
        return {name: np.concatenate([part[name] for part in order]) for name in fields}

"""Which samples show the same image: a caption of the same image is never a wrong one."""

from __future__ import annotations

from workbench.keyed import digest
from workbench.sequences.sequence import Sample

MATCHED = "itm"  # label of a sample: 1 = its caption belongs to its image, 0 = exchanged
IMAGE = "image_id"  # label of a sample: a number that equal images share


def image_id(sample: Sample) -> int:
    """A 63-bit number of the sample's image: of its bytes' hash where the corpus recorded one, else of its key."""
    known = sample.get("meta", {}).get("sha256")
    name = known if known else f"{sample.get('corpus', '')}/{sample['key']}"
    return digest("image", str(name)) >> 65


def labelled(sample: Sample, name: str, value: int) -> Sample:
    """A shallow copy of the sample with one more label."""
    return {**sample, "labels": {**sample.get("labels", {}), name: value}}

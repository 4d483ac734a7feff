"""Media by name: each image among them is checked, and stored, as the one image of other samples is."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.readers.reader import Drop
from pipelines.stages.check_image import CheckImage
from pipelines.stages.cut_off import CUT_OFF, is_cut_off
from workbench.core.errors import WorkbenchError
from workbench.core.images import image_format
from workbench.corpora.schema.members import IMAGES, medium_kind
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class CheckMedia:
    """Drops a sample with a medium of an unknown format, or an image that `check` would drop.

    Sounds and videos are stored as they are; they are known by their first bytes, and dropped where they are cut off.
    """

    check: CheckImage

    def __call__(self, sample: Sample) -> Sample | Drop:
        if "media" not in sample:
            return sample
        stored = {}
        for name, data in sample["media"].items():
            checked = self._stored(name, data)
            if isinstance(checked, Drop):
                return checked
            stored[name] = checked
        return {**sample, "media": stored}

    def _stored(self, name: str, data: bytes) -> bytes | Drop:
        try:
            if image_format(data) is None and medium_kind(name, data) not in IMAGES:  # AVIF's box looks like a video's
                return Drop(f"a medium: {CUT_OFF.reason}") if is_cut_off(data) else data
        except WorkbenchError:
            pass  # an image of another format, perhaps, which is then stored as one of these
        result = self.check({"image": data})
        return Drop(f"a medium: {result.reason}") if isinstance(result, Drop) else result["image"]

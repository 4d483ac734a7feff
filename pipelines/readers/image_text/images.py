"""Base class of the image-text formats: a record for each image; the worker loads its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pipelines.readers.reader import Drop, Malformed, RawReader, Record
from pipelines.sources.files import files, is_media, record_key
from pipelines.sources.image_store import Absent, ImageRef, ImageStore, open_store
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class ImageReader(RawReader):
    """A format whose records belong to an image. `images` are the folders or tar files that hold them."""

    kind: ClassVar[str] = "image-text"

    apart: ClassVar[bool] = False
    """Whether the set's images have unique file names, so that they may lie in one folder, too."""

    images: list[Location] = field(default_factory=list)

    def may_name(self, path: Path) -> bool:
        return is_media(path) or path.suffix == ".tar"

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        """(image name, the sample's fields, place in the file) for every image; each image once.

        The image's name is the sample's key, unless the fields have one. Rows that do not fit the format are read
        within `malformed`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define annotations")

    def named(self, template: str, where: str, **values: str | int) -> str:
        """An image's file name from the format's option `image_name`.

        Raises:
            WorkbenchError: the template needs other fields than `values`.
        """
        try:
            return template.format(**values)
        except (LookupError, ValueError, AttributeError) as error:
            raise WorkbenchError(
                f"{where}: image_name = {template!r} cannot be filled in ({error}); it may use {{subset}} and {{id}}, "
                "for example COCO_{subset}_{id:012d}.jpg"
            ) from error

    def looked_up(self, store: ImageStore, name: str) -> ImageRef | Absent:
        """The image of that name in the annotations."""
        found = store.look(name)
        return store.look(PurePosixPath(name).name) if found is Absent.MISSING and self.apart else found

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        annotated = files(paths, self.suffixes)
        return [*annotated, *open_store(annotated[0], self.images).files]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Raises WorkbenchError if no annotated image is found."""
        store = open_store(files(paths, self.suffixes)[0], self.images)
        found, missing, malformed = 0, 0, Malformed()
        for name, fields, where in self.annotations(paths, malformed):
            yield from malformed.records()
            ref = self.looked_up(store, name)
            found, missing = found + bool(ref), missing + (not ref)
            yield Record((name, dict(fields), ref), ref.size if ref else 0, where)
        yield from malformed.records()
        store.log_found()
        if missing and not found:
            raise store.lacking(f"{missing} annotated images", name, "images")

    def sample(self, record: Record) -> Sample | Drop:
        name, fields, ref = record.data
        if isinstance(ref, Absent):
            return Drop(ref.reason("image"))
        return image_sample(name, ref, fields, record.where)


def image_sample(name: str, ref: ImageRef, fields: Mapping[str, Any], where: str) -> Sample:
    """A sample with the bytes of an image."""
    return described_image(ref.read(), fields, name, where)


def described_image(data: bytes, fields: Mapping[str, Any], name: str, where: str) -> Sample:
    """A sample with an image's bytes and their SHA-256."""
    meta = {"source": where.rpartition(":")[0] or where, "image": name, "sha256": hashlib.sha256(data).hexdigest()}
    key = record_key(str(fields.get("key") or name.rpartition(".")[0] or name))
    return {**fields, "key": key, "image": data, "meta": {**fields.get("meta", {}), **meta}}


def box_within(box: Sequence[float], width: float, height: float) -> list[float]:
    """The corners x1, y1, x2, y2 of a box in 0..1; none if it has no corners, or lies outside the image."""
    if not box or min(width, height) <= 0:
        return []
    corners = [min(max(corner / side, 0.0), 1.0) for corner, side in zip(box, (width, height) * 2, strict=True)]
    return corners if corners[0] < corners[2] and corners[1] < corners[3] else []

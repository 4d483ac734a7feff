"""The base class of formats of precomputed region features."""

from __future__ import annotations

import importlib
import io
import pkgutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError

NPZ_FAILURES = (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile)


class DamagedRegionsError(Exception):
    """An image's features cannot be read; the message says why."""


class ForeignRegions(NamedTuple):
    """An image's regions in a file.

    `arrays` have the names of samples (docs/samples.md). `boxes` [n, 4] are in pixels of an image of `size` (width,
    height; None where the file does not say it), or in 0..1 where `relative`; with None their values decide.
    """

    arrays: dict[str, np.ndarray]
    boxes: np.ndarray
    size: tuple[float, float] | None = None
    relative: bool | None = None


@dataclass(frozen=True)
class RegionFiles:
    """A format of region features. The ids of all images are listed once; an image's arrays are read on demand."""

    path: str

    @classmethod
    def detect(cls, path: Path) -> bool:
        """Whether the file or folder has this format."""
        raise NotImplementedError(f"{cls.__name__} must define detect")

    def files(self) -> list[Path]:
        """The files that decide the features."""
        return [Path(self.path)]

    def places(self) -> Iterator[tuple[str, Any]]:
        """(image id, place of its arrays)."""
        raise NotImplementedError(f"{type(self).__name__} must define places")

    def read(self, place: Any) -> ForeignRegions:
        """The arrays of an image; called in a worker.

        Raises:
            DamagedRegionsError: they cannot be read.
        """
        raise NotImplementedError(f"{type(self).__name__} must define read")


@cache
def region_formats() -> dict[str, type[RegionFiles]]:
    """The formats by name: the module's name with dashes."""
    folder = importlib.import_module("pipelines.readers.regions")
    found: dict[str, type[RegionFiles]] = {}
    for module_info in pkgutil.iter_modules(folder.__path__):
        module = importlib.import_module(f"{folder.__name__}.{module_info.name}")
        for value in vars(module).values():
            own = isinstance(value, type) and issubclass(value, RegionFiles) and value.__module__ == module.__name__
            if own and "detect" in vars(value) and value is not RegionFiles:
                found[module_info.name.replace("_", "-")] = value
    return found


def open_regions(path: Path) -> RegionFiles:
    """The reader of the features at a path, in the detected format.

    Raises:
        WorkbenchError: nothing is there, or no format matches.
    """
    if not path.exists():
        raise WorkbenchError(f"there is no file or folder {path}")
    fitting = [kind for kind in region_formats().values() if kind.detect(path)]
    if len(fitting) != 1 and _of_mmf(path):
        raise WorkbenchError(
            f"{path} has features as mmf writes them: NAME.npy, and NAME_info.npy with their boxes. The latter is a "
            "pickle, and reading it may run any code. The workbench reads an .npz file for each image, with "
            "`features`, `boxes`, `image_width` and `image_height`. If you trust mmf's files, the script in "
            "docs/vision-language/features.md (Precomputed region features) converts them"
        )
    if len(fitting) != 1:
        raise WorkbenchError(
            f"{path} has none of the formats of region features: {', '.join(region_formats())} (a .tsv file of "
            "6 or 10 columns, an .h5 file with a group for each image, a folder with gqa_objects_info.json, one of "
            "an LMDB "
            "with data.mdb, or one of .npz files)"
        )
    return fitting[0](str(path))


def _of_mmf(path: Path) -> bool:
    """Whether it is a file of mmf's features, or a folder with such files."""
    return path.suffix == ".npy" if path.is_file() else next(path.rglob("*_info.npy"), None) is not None


def named_arrays(found: Mapping[str, Any]) -> ForeignRegions:
    """The arrays under our names, from UNITER's names, MCAN's and OpenVQA's (`x`, `bbox`), or ours.

    Raises:
        DamagedRegionsError: features or boxes are missing.
    """
    features = _first(found, "features", "x")
    boxes = _first(found, "norm_bb", "boxes", "bbox")
    if features is None or boxes is None:
        raise DamagedRegionsError(f"no features and boxes; found {', '.join(found) or 'nothing'}")
    if features.ndim == 2 and features.shape[0] != len(boxes) == features.shape[1]:
        features = features.T  # MCAN's are [size, n]
    arrays = {"features": features}
    for name, others in {"confidence": ("conf",), "classes": (), "attributes": (), "scores": ("soft_labels",)}.items():
        value = _first(found, name, *others)
        if value is not None:
            arrays[name] = value
    if "scores" in arrays and "classes" not in arrays and arrays["scores"].ndim == 2 and arrays["scores"].shape[1] > 1:
        arrays["classes"] = arrays["scores"][:, 1:].argmax(-1) + 1  # the background is no class of a region
    names = ((f"image_{side}", f"image_{side[0]}", side) for side in ("width", "height"))
    width, height = (_number(_first(found, *each)) for each in names)
    size = (width, height) if width and height else None
    return ForeignRegions(arrays, boxes[:, :4] if boxes.ndim == 2 else boxes, size, "norm_bb" in found or None)


def npz_arrays(data: bytes | Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file; arrays of Python objects are skipped, as they could run code.

    Raises:
        DamagedRegionsError: it is not an npz file, or damaged.
    """
    try:
        with np.load(io.BytesIO(data) if isinstance(data, bytes) else data, allow_pickle=False) as archive:
            return {name: array for name in archive.files if (array := _plain(archive, name)) is not None}
    except NPZ_FAILURES as error:
        raise DamagedRegionsError(f"not an npz file, or damaged ({error})") from error


def _plain(archive: Any, name: str) -> np.ndarray | None:
    try:
        return archive[name]
    except ValueError as error:
        if "pickle" in str(error) or "Object arrays" in str(error):
            return None
        raise


def _first(found: Mapping[str, Any], *names: str) -> np.ndarray | None:
    return next((np.asarray(found[name]) for name in names if name in found), None)


def _number(value: np.ndarray | None) -> float:
    return float(value) if value is not None and value.size == 1 and value.dtype.kind in "iuf" else 0.0

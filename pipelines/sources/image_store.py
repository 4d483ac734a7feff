"""Where the images of an annotation file are: folders and plain tar files, read in place and never unpacked."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pipelines.sources.files import expand
from workbench.errors import WorkbenchError
from workbench.files.paths import real_path

_HERE = PurePosixPath(".")


class ImageRef(NamedTuple):
    """The bytes of one image: `size` bytes of the file `path` from `offset` on.

    `changed` is when a file in a folder was written, in nanoseconds; a tar file is an input, which has a checksum.
    """

    path: str
    offset: int
    size: int
    changed: int = 0

    def read(self) -> bytes:
        with open(self.path, "rb") as handle:
            handle.seek(self.offset)
            return handle.read(self.size)


class ImageStore:
    """Finds images by their path in a tar file or folder, or by their file name where one image alone has it."""

    def __init__(self, places: Sequence[str | Path], *, nested: bool = True) -> None:
        """Index the tar files (headers only); folders are looked up when asked.

        Args:
            nested: whether images are looked for in the folders within a folder, too (`VG_100K` of Visual Genome).

        Raises:
            WorkbenchError: a place is missing, a tar is compressed or damaged, or a member's path leaves its folder.
        """
        self.places = expand(places)
        self.folders = [real_path(place) for place in self.places if place.is_dir()]
        self.members: dict[str, ImageRef] = {}
        self.nested = nested
        self._inside: dict[str, tuple[int, str] | None] | None = None
        for place in self.places:
            if not place.is_dir():
                self._index(place)

    def find(self, name: str) -> ImageRef | None:
        """The image of that name, None where there is none.

        A path that leads out of the image folder is one of another machine, as a rule: it is not followed, and the
        image is looked for by its file name.

        Raises:
            WorkbenchError: what has this name is a link that leads out of the image folder.
        """
        safe = PurePosixPath(name.replace("\\", "/")).name if leads_out(name) else safe_name(name, "the annotations")
        if not safe.strip("."):
            return None
        ref = self.members.get(safe) or self.members.get(PurePosixPath(safe).name)
        if ref is not None:
            return ref
        for folder in self.folders:
            ref = self._in_folder(folder, folder / safe, name)
            if ref is not None:
                return ref
        inside = self._by_name(PurePosixPath(safe).name) if self.nested else None
        return self._in_folder(inside[0], inside[1], name) if inside is not None else None

    def _in_folder(self, folder: Path, place: Path, name: str) -> ImageRef | None:
        try:
            path = real_path(place)
            found = path.stat() if path.is_file() else None
        except (OSError, ValueError):  # no file can have such a name: too long, or not to be encoded
            return None
        if not path.is_relative_to(folder):
            raise WorkbenchError(f"the image {name!r} is a link that leads out of its folder {folder}")
        return None if found is None else ImageRef(str(path), 0, found.st_size, found.st_mtime_ns)

    def _by_name(self, name: str) -> tuple[Path, Path] | None:
        """The folder and the one file in it, at any depth, that is called so; None where several are."""
        if self._inside is None:
            self._inside = {}
            for number, folder in enumerate(self.folders):
                for place, _, names in os.walk(folder):
                    for found in names:
                        self._inside[found] = None if found in self._inside else (number, os.path.join(place, found))
        found_at = self._inside.get(name)
        return None if found_at is None else (self.folders[found_at[0]], Path(found_at[1]))

    def inside(self, name: str) -> list[tuple[str, ImageRef]]:
        """The files directly in a folder of that name, each with its own name; none where there is no such folder.

        Raises:
            WorkbenchError: the name leads out of the store.
        """
        safe = PurePosixPath(safe_name(name, "the annotations"))
        found = [(path, ref) for path, ref in self.members.items() if PurePosixPath(path).parent == safe != _HERE]
        for folder in self.folders if not found and safe != _HERE else ():
            for path in sorted(real_path(folder / safe).glob("*")) if (folder / safe).is_dir() else ():
                if (ref := self.find(str(safe / path.name))) is not None:
                    found.append((path.name, ref))
        return [(PurePosixPath(path).name, ref) for path, ref in found]

    @property
    def files(self) -> list[Path]:
        """The tar files, without the folders."""
        return [place for place in self.places if place.is_file()]

    def lacking(self, what: str, name: str, option: str) -> WorkbenchError:
        """The error of a store that has not one of the files which are asked for, `name` among them."""
        return WorkbenchError(
            f"none of the {what} is in {self.describe()} (the last one is {name[:200]!r}). Name the folder or tar file "
            f"of the {option} with --{option}"
        )

    def describe(self) -> str:
        return ", ".join(str(place) for place in self.places)

    def _index(self, path: Path) -> None:
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    if member.isfile():
                        name = safe_name(member.name, str(path))
                        ref = ImageRef(str(path), member.offset_data, member.size)
                        self.members[name] = ref
                        self.members.setdefault(PurePosixPath(name).name, ref)
        except tarfile.ReadError as error:
            raise WorkbenchError(
                f"{path} is not a plain tar file, or is cut off ({error}). Decompress a .tar.gz first (gunzip); "
                "for images in a folder name the folder"
            ) from error


def safe_name(name: str, where: str) -> str:
    """The name without a leading `./`.

    Raises:
        WorkbenchError: an absolute path, or one with `..`.
    """
    if leads_out(name):
        raise WorkbenchError(f"the path {name[:200]!r} in {where} leads out of its folder; nothing was read from it")
    return str(PurePosixPath(name.replace("\\", "/")))


def leads_out(name: str) -> bool:
    """Whether it is an absolute path, one of a Windows drive, or one with `..`."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or "\0" in name or re.match(r"[A-Za-z]:/", str(path)) is not None


def open_store(annotations: Path, places: Sequence[str], called: str = "images") -> ImageStore:
    """The images that the user named, else those beside the annotation file.

    Beside `captions_train.jsonl` or `train.jsonl` these are `images_train.tar`, `images_train/`, `images.tar`,
    `images/`, in this order, else the file's own folder.

    Args:
        called: how such folders are called, where they hold something else.
    """
    if places:
        return ImageStore(places)
    folder = annotations.parent
    stem = annotations.name.split(".")[0]
    part = stem.partition("_")[2] or stem
    for name in (f"{called}_{part}.tar", f"{called}_{part}", f"{called}.tar", called):
        if (folder / name).exists():
            return ImageStore([folder / name])
    return ImageStore([folder], nested=False)

"""Finds the images of an annotation file in folders and plain tar files, which are read in place.

A link in a folder that the user named is followed wherever it leads, as in the caches of Hugging Face's hub. A link in
a tar file leads to another of its members, or nowhere. No name in an annotation file leads out of a folder.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from pipelines.sources.files import expand
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import real_path

_HERE = PurePosixPath(".")
_DRIVE = re.compile(r"[A-Za-z]:/")

log = logging.getLogger(__name__)


class ImageRef(NamedTuple):
    """The bytes of one image: `size` bytes of the file `path` from `offset` on.

    `changed` is the time of change of a file in a folder, in nanoseconds; a tar file is an input with a checksum.
    """

    path: str
    offset: int
    size: int
    changed: int = 0

    def read(self) -> bytes:
        with open(self.path, "rb") as handle:
            handle.seek(self.offset)
            return handle.read(self.size)


class Absent(Enum):
    """Why no image was found; false, as there is none."""

    MISSING = "{} not found"
    SEVERAL = "several {}s have this name"
    UNLINKED = "{} is a link whose target is missing (copy with cp -rL, pack with tar --dereference)"

    def __bool__(self) -> Literal[False]:
        return False

    def reason(self, what: str) -> str:
        """The plain reason under which records without a medium are counted."""
        return self.value.format(what)


class ImageStore:
    """Finds images by their path in a tar file or folder, or by their unique file name."""

    def __init__(self, places: Sequence[str | Path], *, nested: bool = True) -> None:
        """Index the tar files (headers only); folders are searched on demand.

        Args:
            nested: whether bare names are searched for in subfolders, too (`VG_100K` of Visual Genome).

        Raises:
            WorkbenchError: a place is missing, or a tar is compressed or damaged.
        """
        self.places = expand(places)
        self.folders = list(dict.fromkeys(real_path(place) for place in self.places if place.is_dir()))
        self.tars = {str(place): self._index(place) for place in self.places if not place.is_dir()}
        self.nested = nested
        self.by_name = 0
        self._example = ""
        self._names: dict[str, ImageRef | tuple[Path, str] | None] | None = None
        self._called = [(real_path(p), spelt.parts) for p in self.places if p.is_dir() for spelt in _spellings(p)]
        self._called += [(p, spelt.with_suffix("").parts) for p in self.places if not p.is_dir() for spelt in (p,)]

    def find(self, name: str) -> ImageRef | None:
        """As `look`; None where there is none."""
        return self.look(name) or None

    def look(self, name: str) -> ImageRef | Absent:
        """The image of that name, or the reason why there is none.

        A relative path with folders names only the file at this path; the folder or tar file may itself have the name
        of its first folders. A bare name that is not at the top may be that of one file at any depth. A path that leads
        out of the image folder usually comes from another machine: it is not followed, unless it leads back in. Instead
        its longest suffix that exists is used, or its bare name if only one image has it.
        """
        path = PurePosixPath(name.replace("\\", "/"))
        foreign = leads_out(name)
        if foreign and (ref := self._followed(path)) is not None:
            return ref
        parts = _below(path) if foreign else path.parts
        if not parts or not parts[-1].strip("."):
            return Absent.MISSING
        for start in range(len(parts) - 1 if foreign else 1):
            if found := self._at(parts[start:]):
                return found[0] if len(found) == 1 else Absent.SEVERAL
        if foreign or len(parts) == 1:
            alone = self._alone(parts[-1])
            self.by_name += bool(alone)
            self._example = self._example or name if alone else self._example
            return alone
        return Absent.MISSING

    def log_found(self, what: str = "images") -> None:
        """Log how many images were found by their file name alone."""
        if self.by_name:
            message = "%d of the %s were found in %s by their file name alone, not by a path (the first is %.200r)"
            log.info(message, self.by_name, what, self.describe(), self._example)

    def _followed(self, path: PurePosixPath) -> ImageRef | Absent | None:
        """The file of an absolute path that lies in one of the folders."""
        with suppress(OSError, ValueError):
            found = real_path(str(path))
            if path.is_absolute() and any(found.is_relative_to(folder) for folder in self.folders):
                return _file(found)
        return None

    def _at(self, parts: tuple[str, ...]) -> list[ImageRef | Absent]:
        """The images at this path in the folders and tar files; else in those named like its first folders."""
        inner = "/".join(parts)
        found = [tar[inner] for tar in self.tars.values() if inner in tar]
        found += [ref for folder in self.folders if (ref := _file(folder / inner)) is not None]
        for cut in range(1, len(parts)) if not found else ():
            rest = "/".join(parts[cut:])
            for place, called in self._called:
                if called[-cut:] == parts[:cut]:
                    tar = self.tars.get(str(place))
                    ref = _file(place / rest) if tar is None else tar.get(rest)
                    found += [ref] if ref is not None else []
        return list(dict.fromkeys(found))

    def _alone(self, file: str) -> ImageRef | Absent:
        """The only image with that file name, at any depth if folders are `nested`."""
        if not self.nested:
            here = self._at((file,))
            return here[0] if len(here) == 1 else Absent.SEVERAL if here else Absent.MISSING
        self._names = self._all_names() if self._names is None else self._names
        if file not in self._names:
            return Absent.MISSING
        found = self._names[file]
        if isinstance(found, tuple) and not isinstance(found, ImageRef):
            return _file(Path(found[1])) or Absent.MISSING
        return found or Absent.SEVERAL

    def _all_names(self) -> dict[str, ImageRef | tuple[Path, str] | None]:
        """By file name: the tar member, or the folder and the file in it; None if several have the name."""
        names: dict[str, ImageRef | tuple[Path, str] | None] = {}
        for tar in self.tars.values():
            for path, ref in tar.items():
                if isinstance(ref, ImageRef):
                    file = PurePosixPath(path).name
                    names[file] = None if file in names else ref
        for folder in self.folders:
            seen: set[str] = set()
            for place, below, files in os.walk(folder, followlinks=True):
                real = os.path.realpath(place)
                if real in seen:  # a link to a folder above, or a second one to this folder
                    below.clear()
                    continue
                seen.add(real)
                for file in files:
                    at = os.path.join(place, file)
                    known = names.get(file)
                    again = known is not None and real_path(known[1] if len(known) == 2 else known.path) == real_path(
                        at
                    )
                    names[file] = (folder, at) if file not in names else known if again else None
        return names

    def inside(self, name: str) -> list[tuple[str, ImageRef]]:
        """The files directly in a folder of that name, each with its own name; empty if there is no such folder.

        Raises:
            WorkbenchError: the name leads out of the store.
        """
        safe = PurePosixPath(safe_name(name, "the annotations"))
        members = [pair for tar in self.tars.values() for pair in tar.items()]
        found = [(path, ref) for path, ref in members if ref and PurePosixPath(path).parent == safe != _HERE]
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
        """The error that none of the requested files exists, `name` among them."""
        why = self.look(name)
        more = f"; {why.reason(option.removesuffix('s'))}" if isinstance(why, Absent) and why != Absent.MISSING else ""
        return WorkbenchError(
            f"none of the {what} is in {self.describe()} (the last one is {name[:200]!r}{more}). Name the folder or "
            f"tar file of the {option} with --{option}"
        )

    def describe(self) -> str:
        return ", ".join(str(place) for place in self.places)

    def _index(self, path: Path) -> dict[str, ImageRef | Absent]:
        """A tar's images by their path in it; of several with one path the last, as tar extracts it.

        A path that leads out of the tar begins after its root or its last `..`, as tar extracts it, too. Another member
        of that path is preferred. A link is the member that it leads to.
        """
        members: dict[str, ImageRef | Absent] = {}
        links: dict[str, str] = {}
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    name = _within(member.name)
                    if member.isfile() and (name not in members or not leads_out(member.name)):
                        members[name] = ImageRef(str(path), member.offset_data, member.size)
                    elif member.islnk():
                        links[name] = _within(member.linkname)
                    elif member.issym():
                        links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
        except tarfile.ReadError as error:
            raise WorkbenchError(
                f"{path} is not a plain tar file, or is cut off ({error}). Decompress a .tar.gz first (gunzip); "
                "for images in a folder name the folder"
            ) from error
        for name, target in links.items():
            passed = {name}
            while target in links and target not in passed:
                passed.add(target)
                target = links[target]
            members.setdefault(name, members.get(target, Absent.UNLINKED))
        return members


def _file(place: Path) -> ImageRef | Absent | None:
    """The file at a path, behind links, too; None where there is none."""
    try:
        path = real_path(place)
        found = path.stat() if path.is_file() else None
    except (OSError, ValueError):  # the name is too long for a file, or cannot be encoded
        return None
    if found is None:
        return Absent.UNLINKED if os.path.islink(place) and not os.path.exists(place) else None
    return ImageRef(str(path), 0, found.st_size, found.st_mtime_ns)


def _within(name: str) -> str:
    """The path of a tar's member in it."""
    return "/".join(_below(PurePosixPath(name.replace("\\", "/"))))


def _spellings(folder: Path) -> set[Path]:
    """A folder as it was named and its real path."""
    return {Path(os.path.abspath(folder)), real_path(folder)}


def _below(path: PurePosixPath) -> tuple[str, ...]:
    """The components of a path after its root, its drive and the last `..`."""
    parts = path.parts[1:] if path.is_absolute() or _DRIVE.match(str(path)) else path.parts
    return parts[max((at + 1 for at, part in enumerate(parts) if part == ".."), default=0) :]


def safe_name(name: str, where: str) -> str:
    """The name without a leading `./`.

    Raises:
        WorkbenchError: an absolute path, or one with `..`.
    """
    if leads_out(name):
        raise WorkbenchError(f"the path {name[:200]!r} in {where} leads out of its folder; nothing was read from it")
    return str(PurePosixPath(name.replace("\\", "/")))


def leads_out(name: str) -> bool:
    """Whether a path is absolute, has a Windows drive, or contains `..`."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or "\0" in name or _DRIVE.match(str(path)) is not None


def open_store(annotations: Path, places: Sequence[str], called: str = "images") -> ImageStore:
    """The store of the images that the user named, else of those next to the annotation file.

    Next to `captions_train.jsonl` or `train.jsonl` these are `images_train.tar`, `images_train/`, `images.tar`,
    `images/`, in this order, else the file's own folder.

    Args:
        called: prefix of such folders' names, for other media.
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

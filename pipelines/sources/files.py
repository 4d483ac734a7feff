"""Raw input files: opened whatever their compression, with errors that name the place."""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import hashlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import zstandard

from pipelines.sources.columnar import SUFFIXES, is_listed
from workbench.core.errors import WorkbenchError, nearest
from workbench.core.files.checksums import matches
from workbench.core.files.drafts import sha256_of
from workbench.core.files.text_files import ENCODINGS, mark_of

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
NOT_DATA = (".", "README", "LICENSE", "LICENCE")
ABOUT = (
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "state.json",
    "_SUCCESS",
    "MD5SUMS",
    "SHA256SUMS",
)
"""Files that `datasets`, Spark and checksum tools write next to the data."""
CHECKSUMS = (".md5", ".sha1", ".sha256", ".sha512", ".crc", ".lock")
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
VIDEOS = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".mpg", ".mpeg")
SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".m4a", ".opus")
READ_SIZE = 1 << 20
LINE_LIMIT = 256 << 20
"""Most bytes of a line: a line in a compressed file of some megabytes could fill the memory."""
FEED = 1 << 10
"""Compressed bytes of a .zst file that are read at once; they expand to 32 MB at most (4 bytes to a 128 kB block)."""


def expand(inputs: Iterable[str | Path]) -> list[Path]:
    """The paths that the user named: files, folders, or glob patterns (sorted).

    Raises:
        WorkbenchError: nothing has that name; the message names similar files.
    """
    paths: list[Path] = []
    for name in inputs:
        path = Path(name)
        if path.exists():
            paths.append(path)
        elif matches := sorted(glob.glob(str(name), recursive=True)):
            paths.extend(Path(m) for m in matches)
        else:
            raise _missing(path)
    if not paths:
        raise WorkbenchError("no input was named; give at least one file or folder")
    for path in paths:
        if shown(path) != str(path):
            raise WorkbenchError(f"the name {shown(path)} is not UTF-8; rename the file")
    return paths


def shown(path: Path) -> str:
    """A path as text that can be written; bytes that are not UTF-8 as `\\xff`."""
    return os.fsencode(path).decode("utf-8", errors="backslashreplace")


def files(paths: Iterable[Path], suffixes: tuple[str, ...] = ()) -> list[Path]:
    """All files in `paths`; a folder stands for its files (recursively, sorted) that end in one of `suffixes`.

    Hidden files, READMEs and licences in a folder are not data.

    Raises:
        WorkbenchError: a folder without such a file.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        all_files = inside(path)
        chosen = [p for p in all_files if not suffixes or plain_suffix(p) in suffixes]
        if not chosen:
            wanted = f" with the suffix {' or '.join(suffixes)}" if suffixes else ""
            raise WorkbenchError(f"the folder {path} has no file{wanted} (it has {len(all_files)} files)")
        found.extend(chosen)
    return found


def inside(folder: Path) -> list[Path]:
    """All files in a folder that may be data, recursively, sorted: no hidden ones, READMEs or licences."""
    return [path for path in everything(folder) if _what_it_is(path, folder) is None]


def everything(folder: Path) -> list[Path]:
    """All files in a folder, recursively, sorted."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _what_it_is(path: Path, folder: Path) -> str | None:
    """The kind of a file that is not data; None for data."""
    if shown(path) != str(path):
        return "names that are not UTF-8"
    if any(part.startswith(".") for part in path.relative_to(folder).parts):
        return "hidden"
    about = path.name.startswith(NOT_DATA) or path.name in ABOUT or path.suffix.lower() in CHECKSUMS
    if path.suffix.lower() in SUFFIXES and not is_listed(path):
        return "cached"
    return "about the data" if about else None


def is_about(path: Path, folder: Path) -> bool:
    """Whether a file in a folder is not data: a hidden file, a README, a cache."""
    return _what_it_is(path, folder) is not None


def passed_over(paths: Iterable[Path], read: Iterable[Path], named: Callable[[Path], bool]) -> dict[str, list[str]]:
    """The files in folders among `paths` that are neither `read` nor `named` by records, by suffix or kind."""
    known, left = set(read), dict[str, list[str]]()
    for folder in paths:
        for path in everything(folder) if folder.is_dir() else ():
            what = _what_it_is(path, folder)
            if path not in known and not (what is None and named(path)):
                left.setdefault(what or plain_suffix(path) or "no suffix", []).append(shown(path.relative_to(folder)))
    return left


def plain_suffix(path: Path) -> str:
    """The suffix in lower case without that of a compression: `.jsonl` for `books.jsonl.gz`."""
    suffixes = [s.lower() for s in path.suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def is_media(path: Path) -> bool:
    """Whether a file is an image, a video or a sound, by its suffix."""
    return plain_suffix(path) in (*IMAGES, *VIDEOS, *SOUNDS)


def stem(path: Path) -> str:
    """The file's name without its suffixes."""
    return path.name.split(".")[0] or path.name


def open_bytes(path: Path) -> IO[bytes]:
    """A binary stream of the file's content, decompressed if its name or first bytes are those of gzip, bzip2, xz or
    Zstandard."""
    if not path.is_file():
        raise _missing(path)
    file = path.open("rb", buffering=READ_SIZE)
    first = _first(file, 16)
    for suffix, (magic, opened) in _COMPRESSIONS.items():
        if path.suffix.lower() == suffix or magic.match(first):
            file.close()
            return io.BufferedReader(opened(path, "rb"), READ_SIZE)
    return file


def open_text_bytes(path: Path) -> IO[bytes]:
    """As `open_bytes`, for a text: UTF-8 without a byte order mark. UTF-16 and UTF-32 with a byte order mark are
    converted.

    Raises:
        WorkbenchError (while it is read): not the encoding that the byte order mark announces.
    """
    handle = open_bytes(path)
    with undamaged(path):
        first = _first(handle, 4)
    mark = mark_of(first)
    if mark is None:
        return handle
    if mark == codecs.BOM_UTF8:
        handle.read(len(mark))
        return handle
    return io.BufferedReader(_Recoded(handle, ENCODINGS[mark], path), READ_SIZE)


def _first(handle: IO[bytes], count: int) -> bytes:
    """The first bytes; they can be read again."""
    if not handle.seekable():
        return bytes(handle.peek(count)[:count])  # type: ignore[attr-defined]  # copies the whole buffer
    first = handle.read(count)
    handle.seek(0)
    return first


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line without its end) for every line, in UTF-8 and undecoded (`open_text_bytes`).

    Raises:
        WorkbenchError: the compressed file is damaged or cut off, or a line is longer than `LINE_LIMIT`.
    """
    return ((number, line) for number, line, _ in placed_lines(path))


def placed_lines(path: Path, offset: int | None = None, number: int = 1) -> Iterator[tuple[int, bytes, int | None]]:
    """As `lines`, each with the offset of its first byte; None in a file that cannot be read from an offset
    (compressed, or not UTF-8).

    Args:
        offset: begin there, with the line of this `number`; by default at the beginning.
    """
    with open_text_bytes(path) as handle, undamaged(path):
        plain = isinstance(getattr(handle, "raw", None), io.FileIO)
        at = handle.tell() if plain else 0
        if offset is not None:
            at = handle.seek(offset)
        for count, line in enumerate(iter(partial(handle.readline, LINE_LIMIT + 1), b""), number):
            if len(line) > LINE_LIMIT:
                raise WorkbenchError(
                    f"{path}:{count}: the line is longer than {LINE_LIMIT:,} bytes; break it into several"
                )
            yield count, line.rstrip(b"\r\n"), at if plain else None
            at += len(line)


@contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Raises WorkbenchError where reading a compressed file inside finds it damaged or cut off."""
    try:
        yield
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk; those of gzip and bzip2 have no errno
        raise WorkbenchError(f"{path} is damaged or cut off: {error}. Fetch or compress it again") from error


def decode(raw: bytes, where: str) -> str:
    """UTF-8 to text.

    Raises:
        WorkbenchError: not UTF-8; says where and what to do.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found = raw[error.start : error.start + 4].hex(" ")
        raise WorkbenchError(
            f"{where}: not valid UTF-8 (bytes {found} at column {error.start}); {encoding_advice(raw)}"
        ) from error


def encoding_advice(raw: bytes) -> str:
    """Advice for bytes that are not UTF-8, by their pattern."""
    if raw.startswith(b"PAR1"):
        return "it is a parquet file, which no format of texts reads. Write its columns as JSON lines or CSV"
    zeros = [raw[start::2].count(0) * 4 > len(raw) for start in (0, 1)]
    if any(zeros):
        found = "utf-16le" if zeros[1] else "utf-16be"
        return f"it looks like UTF-16 without a byte order mark. Convert it with: iconv -f {found} -t utf-8 IN > OUT"
    try:
        raw.decode("gb18030")
        asian = len(raw) - len(raw.decode("gb18030")) > 3
    except UnicodeDecodeError:
        asian = False
    if asian:
        return (
            "it may be GB18030 (Chinese), else Windows-1252. Convert the file, for example with: "
            "iconv -f gb18030 -t utf-8 IN > OUT"
        )
    return "convert the file first, for example with: iconv -f cp1252 -t utf-8 IN > OUT"


def identity(path: Path) -> dict[str, str | int]:
    """The identity of a version of an input: its name, its size in bytes and its SHA-256 checksum."""
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def is_version(path: Path, stored: Mapping[str, str | int]) -> bool:
    """Whether a file still has this `identity`; hashed once for each version of the file."""
    same = (path.name, path.stat().st_size) == (stored.get("name"), stored.get("bytes"))
    return same and ("sha256" not in stored or matches(path, str(stored["sha256"])))


def record_key(name: str) -> str:
    """A record key from any name: letters, digits, `_` and `-` (no dots: WebDataset splits names at the first).

    A name that has to be changed gets a hash, so that different names stay different.
    """
    clean = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:80].strip("_")
    if clean == name and clean:
        return clean
    suffix = hashlib.blake2b(name.encode(), digest_size=6).hexdigest()
    return f"{clean}-{suffix}" if clean else suffix


def _missing(path: Path) -> WorkbenchError:
    folder = path.parent
    if not folder.is_dir():
        return WorkbenchError(f"there is no file {path}: the folder {folder} does not exist")
    alongside = [p.name for p in folder.iterdir()]
    close = nearest(path.name, alongside)
    guess = f" Did you mean {' or '.join(close)}?" if close else f" {folder} has {len(alongside)} entries."
    return WorkbenchError(f"there is no file {path}.{guess}")


class _Stream(io.RawIOBase):
    """A stream of bytes in pieces; `_more` returns the next piece, none at the end."""

    _ready = memoryview(b"")

    def _more(self) -> bytes:
        raise NotImplementedError(f"{type(self).__name__} must define _more")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]  # a writable buffer, as RawIOBase has it
        if not self._ready:
            self._ready = memoryview(self._more())
        taken = min(len(buffer), len(self._ready))
        buffer[:taken] = self._ready[:taken]
        self._ready = self._ready[taken:]
        return taken


class _Zstandard(_Stream):
    """Decompressed bytes of a .zst file; unlike the library's own stream reader it notices a cut-off frame."""

    def __init__(self, path: Path, mode: str = "rb") -> None:
        self._file = path.open(mode)
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._fed = False

    def _more(self) -> bytes:
        found = b""
        while not found:
            compressed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
                self._fed = False
            compressed = compressed or self._file.read(FEED)
            if not compressed:
                if self._fed:
                    raise EOFError("the last zstandard frame is not complete")
                return b""
            self._fed = True
            found = self._frame.decompress(compressed)
            if self._frame.eof:
                self._fed = False
        return found

    def close(self) -> None:
        self._file.close()
        super().close()


class _Recoded(_Stream):
    """A stream of text in another encoding, as UTF-8."""

    def __init__(self, handle: IO[bytes], encoding: str, path: Path) -> None:
        self._handle, self._path, self._encoding = handle, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def _more(self) -> bytes:
        found, raw = "", b"begin"
        while raw and not found:
            raw = self._handle.read(READ_SIZE)
            try:
                found = self._decoder.decode(raw, final=not raw)
            except UnicodeError as error:
                raise WorkbenchError(
                    f"{self._path}: it begins with the byte order mark of {self._encoding}, and is not valid ({error})"
                ) from error
        return found.encode(errors="surrogatepass")

    def close(self) -> None:
        self._handle.close()
        super().close()


_COMPRESSIONS: dict[str, tuple[re.Pattern[bytes], Callable[..., Any]]] = {
    ".gz": (re.compile(rb"\x1f\x8b\x08"), gzip.open),
    ".bz2": (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P)"), bz2.open),
    ".xz": (re.compile(rb"\xfd7zXZ\0"), lzma.open),
    ".zst": (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _Zstandard),
}
"""By suffix: the first bytes of a compressed file, and the function that opens it."""

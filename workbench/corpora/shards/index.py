"""The index of a shard: places of members, checksums and lengths of records, and cut points of texts.

There is one safetensors file of flat arrays per shard (`IndexBuilder`), mapped into memory: opening it costs the same
for ten records as for ten million. Everything in the file is checked on reading. Offsets must lie in the file and in
the shard, starts must rise, and keys must be UTF-8. So whatever an index refers to exists, and no array is larger than
the file.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.core.files.text_files import parse_json
from workbench.corpora.shards.cuts import windows

SUFFIX = ".index"
HOW_TO_FIX_INDEX = "run the `workbench prepare` or `workbench index` command that created it again"


def index_name(shard_name: str) -> str:
    """The file name of a shard's index: `part-0.tar` -> `part-0.index`."""
    return shard_name.removesuffix(".tar") + SUFFIX


def record_checksum(members: Iterable[bytes]) -> int:
    """A checksum of 64 bits (BLAKE2b) of a record's members, in their order."""
    hasher = hashlib.blake2b(digest_size=8)
    for data in members:
        hasher.update(data)
    return int.from_bytes(hasher.digest(), "little", signed=True)


class IndexBuilder:
    """Collects the index of a shard, record by record."""

    def __init__(self, units: Sequence[str]) -> None:
        self.units = tuple(units)
        self.names: dict[str, int] = {}
        self._keys: list[bytes] = []
        self._checksums: list[int] = []
        self._contents: list[int] = []
        self._members: list[tuple[int, int, int]] = []
        self._member_starts = [0]
        self._lengths: dict[str, list[int]] = {unit: [] for unit in self.units}
        self._cuts: list[int] = []
        self._cut_starts = [0]

    @property
    def records(self) -> int:
        return len(self._keys)

    def add(
        self,
        key: str,
        members: Sequence[tuple[str, int, int]],
        checksum: int,
        content: int,
        lengths: Mapping[str, int],
        cuts: Sequence[int] | None = None,
    ) -> None:
        """Add a record.

        Args:
            members: (name, offset of the data in the tar, size), both in bytes.
            checksum: see `record_checksum`.
            content: see `workbench.corpora.shards.record.content_of`.
        """
        self._keys.append(key.encode())
        self._checksums.append(checksum)
        self._contents.append(content)
        self._members.extend((self.names.setdefault(n, len(self.names)), offset, size) for n, offset, size in members)
        self._member_starts.append(len(self._members))
        for unit in self.units:
            self._lengths[unit].append(lengths.get(unit, 0))
        self._cuts.extend(cuts or ())
        self._cut_starts.append(len(self._cuts))

    def totals(self) -> dict[str, int]:
        """Total length per unit."""
        return {unit: sum(lengths) for unit, lengths in self._lengths.items()}

    def write(self, path: Path, shard: Mapping[str, Any]) -> None:
        """Write the index atomically; `shard` is stored with it."""
        ids, offsets, sizes = (
            (np.array(column) for column in zip(*self._members, strict=True))
            if self._members
            else (
                np.empty(0),
                np.empty(0),
                np.empty(0),
            )
        )
        arrays: dict[str, np.ndarray] = {
            "keys": np.frombuffer(b"".join(self._keys), np.uint8),
            "key_starts": np.cumsum([0, *map(len, self._keys)]).astype(np.int64),
            "checksums": np.array(self._checksums, np.int64),
            "contents": np.array(self._contents, np.uint64).view(np.int64),
            "member_starts": np.array(self._member_starts, np.int64),
            "member_names": ids.astype(np.int32),
            "member_offsets": offsets.astype(np.int64),
            "member_sizes": sizes.astype(np.int64),
            "cut_starts": np.array(self._cut_starts, np.int64),
            "cuts": np.array(self._cuts, np.int64 if max(self._cuts, default=0) >= 2**31 else np.int32),
        }
        arrays |= {f"{LENGTH}{unit}": np.array(lengths, np.int64) for unit, lengths in self._lengths.items()}
        # a single entry: safetensors writes several entries in random order
        about = {"index": json.dumps({"names": list(self.names), "shard": dict(shard)})}
        with atomic(path) as file:
            file.write(save(arrays, about))


class ShardIndex:
    """A shard's index, mapped into memory. Attributes are arrays over records or members (see `IndexBuilder`).

    Args:
        path: the file.
        view: the bytes of the index, if they are a part of the file; the file is mapped without it.

    Raises:
        WorkbenchError: the file is missing or damaged.
    """

    held: object = None
    """What must live as long as the index: the lock on a cached copy."""

    def __init__(self, path: Path, view: memoryview | None = None) -> None:
        self.path = path
        try:
            self._view = _mapped(path) if view is None else view
            arrays, about = read_layout(self._view)
            self.names: list[str] = about["names"]
            self.shard: dict[str, Any] = about["shard"]
            self._checksums = arrays.get("checksums")
            self.contents = arrays.get("contents")
            self.member_starts = arrays["member_starts"]
            self.member_names = arrays["member_names"]
            self.member_offsets = arrays["member_offsets"]
            self.member_sizes = arrays["member_sizes"]
            self.cut_starts, self.cuts = arrays["cut_starts"], arrays["cuts"]
            self._keys, self._key_starts = arrays["keys"], arrays["key_starts"]
            self.lengths = {n.removeprefix(LENGTH): a for n, a in arrays.items() if n.startswith(LENGTH)}
        except FileNotFoundError as error:
            raise WorkbenchError(f"{path}: the shard's index is missing; {HOW_TO_FIX_INDEX}") from error
        except ValueError as error:
            raise WorkbenchError(f"{path}: the index is damaged ({error}); {HOW_TO_FIX_INDEX}") from error

    def sha256(self) -> str:
        """The checksum of the index's bytes."""
        return hashlib.sha256(self._view).hexdigest()

    @property
    def records(self) -> int:
        return len(self.member_starts) - 1

    def key(self, record: int) -> str:
        """The key of a record."""
        return bytes(self._keys[self._key_starts[record] : self._key_starts[record + 1]]).decode()

    def checksum(self, record: int) -> int | None:
        """The checksum of a record (`record_checksum`); None in an index of an earlier version."""
        return None if self._checksums is None else int(self._checksums[record])

    def members(self, record: int) -> list[tuple[str, int, int]]:
        """(name, offset, size) of a record's members."""
        start, end = int(self.member_starts[record]), int(self.member_starts[record + 1])
        names = [self.names[i] for i in self.member_names[start:end].tolist()]
        places = zip(self.member_offsets[start:end].tolist(), self.member_sizes[start:end].tolist(), strict=True)
        return [(name, offset, size) for name, (offset, size) in zip(names, places, strict=True)]

    def windows(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """The windows of this shard's texts: those before each record [records + 1], and the end of each [windows]."""
        record, _, end = windows(self.lengths["text"], self.cut_starts, self.cuts, width)
        return np.searchsorted(record, np.arange(self.records + 1)), end

    def elements(self, unit: str) -> np.ndarray:
        """The elements of lists before each record [records + 1]."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths[unit])])


_TYPES: dict[str, np.dtype[Any]] = {"I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "U8": np.dtype("u1")}
_ARRAYS = {
    "keys": ("U8",),
    "key_starts": ("I64",),
    "member_starts": ("I64",),
    "member_names": ("I32",),
    "member_offsets": ("I64",),
    "member_sizes": ("I64",),
    "cut_starts": ("I64",),
    "cuts": ("I32", "I64"),
}
_LATER = {"checksums": ("I64",), "contents": ("I64",)}
"""Arrays that an index of an earlier version lacks."""
LENGTH = "length."
_PREFIX = 8  # bytes of the header's length

Arrays = dict[str, np.ndarray]


def _mapped(path: Path) -> memoryview:
    """
    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty.
    """
    with open(path, "rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError as error:
            raise ValueError("it is empty") from error


def read_layout(view: memoryview) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of an index as views of its bytes, and its metadata (`names`, `shard`).

    Raises:
        ValueError: the index is damaged; the message says how.
    """
    header, start = _header(view)
    about = _about(header.pop("__metadata__", None))
    arrays = {name: _array(view, start, name, entry) for name, entry in header.items()}
    missing = sorted(_ARRAYS.keys() - arrays.keys())
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    _check(arrays, about)
    return arrays, about


def _header(view: memoryview) -> tuple[dict[str, Any], int]:
    """The header, and the offset of the arrays' bytes."""
    size = int.from_bytes(view[:_PREFIX], "little")
    if len(view) < _PREFIX or size > len(view) - _PREFIX:
        raise ValueError("it is truncated")
    header = parse_json(bytes(view[_PREFIX : _PREFIX + size]))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table of arrays")
    return header, _PREFIX + size


def _about(stored: Any) -> dict[str, Any]:
    if not isinstance(stored, dict) or not isinstance(stored.get("index"), str):
        raise ValueError("its header does not describe a shard")
    about = parse_json(stored["index"])
    names = about.get("names") if isinstance(about, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its header does not name the members")
    shard = about.get("shard")
    if not isinstance(shard, dict) or not isinstance(shard.get("bytes"), int):
        raise ValueError("its header does not describe a shard")
    return about


def _array(view: memoryview, start: int, name: str, entry: Any) -> np.ndarray:
    allowed = ("I64",) if name.startswith(LENGTH) else (_ARRAYS | _LATER).get(name, ())
    kind = entry.get("dtype") if isinstance(entry, dict) else None
    if kind not in allowed:
        raise ValueError(f"its array {name!r} is of type {kind!r}; allowed: {', '.join(allowed) or 'no such array'}")
    shape, place, width = entry.get("shape"), entry.get("data_offsets"), _TYPES[kind].itemsize
    if not (_integers(shape, 1) and _integers(place, 2)):
        raise ValueError(f"its array {name!r} has no place in the file")
    first, last = place
    if not 0 <= first <= last <= len(view) - start or last - first != shape[0] * width:
        raise ValueError(f"its array {name!r} lies outside of the file: it is truncated or damaged")
    return np.frombuffer(view, _TYPES[kind], shape[0], start + first)


def _integers(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(type(v) is int for v in value)


def _check(arrays: Arrays, about: dict[str, Any]) -> None:
    """Check the arrays.

    Raises:
        ValueError: arrays contradict each other or the shard's size.
    """
    size = about["shard"]["bytes"]
    records, members = len(arrays["member_starts"]) - 1, len(arrays["member_names"])
    _check_starts(arrays, "member_starts", records, members)
    _check_starts(arrays, "key_starts", records, len(arrays["keys"]))
    _check_starts(arrays, "cut_starts", records, len(arrays["cuts"]))
    names, offsets, sizes = arrays["member_names"], arrays["member_offsets"], arrays["member_sizes"]
    if not len(names) == len(offsets) == len(sizes):
        raise ValueError("its arrays of members differ in length")
    if members:
        if names.min() < 0 or names.max() >= len(about["names"]):
            raise ValueError("a member has no name")
        if offsets.min() < 0 or sizes.min() < 0 or offsets.max() > size or (sizes > size - offsets).any():
            raise ValueError(f"a member lies outside of the shard of {size} bytes")
    for name in _LATER.keys() & arrays.keys():
        if len(arrays[name]) != records:
            raise ValueError(f"its array of {name} is not of {records} records")
    _check_keys(arrays["keys"], arrays["key_starts"])
    for name, lengths in arrays.items():
        # a text has at most as many characters, and a list at most as many elements, as its record has bytes
        if name.startswith(LENGTH) and (
            len(lengths) != records or (lengths < 0).any() or lengths.sum(dtype=np.float64) > size
        ):
            raise ValueError(f"its {name} does not fit the shard")
    _check_cuts(arrays)


def _check_starts(arrays: Arrays, name: str, records: int, total: int) -> None:
    starts = arrays[name]
    if records < 0 or len(starts) != records + 1 or starts[0] != 0 or starts[-1] != total:
        raise ValueError(f"its {name} do not begin at 0 and end at {total}")
    if (starts[1:] < starts[:-1]).any():
        raise ValueError(f"its {name} do not rise")


def _check_keys(keys: np.ndarray, starts: np.ndarray) -> None:
    try:
        keys.tobytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"its keys are not UTF-8: {error}") from error
    first = starts[:-1][starts[:-1] < len(keys)]
    if (keys[first] & 0xC0 == 0x80).any():
        raise ValueError("a key begins within a character")


def _check_cuts(arrays: Arrays) -> None:
    cuts, starts = arrays["cuts"], arrays["cut_starts"]
    if not len(cuts):
        return
    lengths = arrays.get(f"{LENGTH}text")
    if lengths is None:
        raise ValueError("it has cut points and no texts")
    points = cuts >> 1
    begins = np.zeros(len(points) + 1, np.bool_)
    begins[starts] = True
    some = starts[1:] > starts[:-1]
    first, last = points[starts[:-1][some]], points[starts[1:][some] - 1]
    rising = ((points[1:] > points[:-1]) | begins[1:-1]).all()
    if not rising or (first < 1).any() or (last >= lengths[some]).any():
        raise ValueError("its cut points do not rise within their texts")

"""The index of a shard: where every member of every record lies, how long each record is, where its text may be cut.

One safetensors file per shard, mapped into memory: opening it costs the same for ten records as for ten million.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from workbench.corpora.cuts import windows
from workbench.corpora.index_layout import LENGTH, read_layout
from workbench.errors import WorkbenchError
from workbench.files.drafts import atomic

SUFFIX = ".index"
MEND = "run the `workbench prepare` or `workbench index` that made it again, which mends it"


def index_name(shard_name: str) -> str:
    """The file name of a shard's index: `part-0.tar` -> `part-0.index`."""
    return shard_name.removesuffix(".tar") + SUFFIX


class IndexBuilder:
    """Collects the index of a shard, record by record."""

    def __init__(self, units: Sequence[str]) -> None:
        self.units = tuple(units)
        self.names: dict[str, int] = {}
        self._keys: list[bytes] = []
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
        lengths: Mapping[str, int],
        cuts: Sequence[int] | None = None,
    ) -> None:
        """One record; `members` are (name, offset of the data in the tar, size), both in bytes."""
        self._keys.append(key.encode())
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
            "member_starts": np.array(self._member_starts, np.int64),
            "member_names": ids.astype(np.int32),
            "member_offsets": offsets.astype(np.int64),
            "member_sizes": sizes.astype(np.int64),
            "cut_starts": np.array(self._cut_starts, np.int64),
            "cuts": np.array(self._cuts, np.int64 if max(self._cuts, default=0) >= 2**31 else np.int32),
        }
        arrays |= {f"{LENGTH}{unit}": np.array(lengths, np.int64) for unit, lengths in self._lengths.items()}
        # one entry alone: safetensors writes several in an order that changes from run to run
        about = {"index": json.dumps({"names": list(self.names), "shard": dict(shard)})}
        with atomic(path) as file:
            file.write(save(arrays, about))


class ShardIndex:
    """A shard's index, mapped into memory. Attributes are arrays over records or members (see `IndexBuilder`).

    Raises:
        WorkbenchError: the file is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            arrays, about = read_layout(path)
            self.names: list[str] = about["names"]
            self.shard: dict[str, Any] = about["shard"]
            self.member_starts = arrays["member_starts"]
            self.member_names = arrays["member_names"]
            self.member_offsets = arrays["member_offsets"]
            self.member_sizes = arrays["member_sizes"]
            self.cut_starts, self.cuts = arrays["cut_starts"], arrays["cuts"]
            self._keys, self._key_starts = arrays["keys"], arrays["key_starts"]
            self.lengths = {n.removeprefix(LENGTH): a for n, a in arrays.items() if n.startswith(LENGTH)}
        except FileNotFoundError as error:
            raise WorkbenchError(f"{path}: the shard's index is missing; {MEND}") from error
        except ValueError as error:
            raise WorkbenchError(f"{path}: the index is damaged ({error}); {MEND}") from error

    @property
    def records(self) -> int:
        return len(self.member_starts) - 1

    def key(self, record: int) -> str:
        """The key of a record."""
        return bytes(self._keys[self._key_starts[record] : self._key_starts[record + 1]]).decode()

    def members(self, record: int) -> list[tuple[str, int, int]]:
        """(name, offset, size) of a record's members."""
        start, end = int(self.member_starts[record]), int(self.member_starts[record + 1])
        names = [self.names[i] for i in self.member_names[start:end].tolist()]
        places = zip(self.member_offsets[start:end].tolist(), self.member_sizes[start:end].tolist(), strict=True)
        return [(name, offset, size) for name, (offset, size) in zip(names, places, strict=True)]

    def items(self, unit: str, window: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The items of this shard: arrays record, start, end in the unit's elements, in the shard's order."""
        if unit == "text":
            if window is None:
                raise ValueError("items of text need a window width")
            return _triple(windows(self.lengths["text"], self.cut_starts, self.cuts, window))
        lengths = np.asarray(self.lengths[unit])
        record = np.repeat(np.arange(len(lengths)), lengths)
        start = np.arange(len(record)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return record, start, start + 1


def _triple(arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    record, start, end = arrays
    return record, start, end

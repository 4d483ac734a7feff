"""Tensors in pieces: safetensors files with a box of each tensor, written by many ranks and read by any number.

The metadata of a file has the place of the first element of each piece in its tensor. A file without that has whole
tensors. This is the layout of torch.distributed.checkpoint, whose `HuggingFaceStorageReader` reads such a folder too.
Nothing is pickled. Tensors are written and read one by one, so that no process holds a second copy of its model.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sync
from workbench.core.files.text_files import parse_json
from workbench.core.processes.distributed import World
from workbench.models.tensor_cut import is_spread, local
from workbench.runs.weights import TIED, opened

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

OFFSETS = "DCP_SHARDING_INFO"
"""The key of a file's metadata with the places of its pieces: `{name: {"saved_offsets": [row, column]}}`."""
FURTHEST = 1 << 62
"""No element of a tensor lies this far, so that sums of two places are numbers of 64 bits."""
ALONE = World()
Box = tuple[tuple[int, ...], tuple[int, ...]]
"""The place of a piece's first element in its tensor, and the piece's shape."""


@dataclass(frozen=True)
class Piece:
    """The elements of a tensor from `offsets` on."""

    values: Tensor
    offsets: tuple[int, ...]


def is_sharded(module: nn.Module) -> bool:
    """Whether parameters of a module are spread over ranks."""
    return any(map(is_spread, module.parameters()))


def box_of(tensor: Tensor) -> Box:
    """The box of a tensor that this rank has; of a tensor that is on every rank, all of it."""
    if not is_spread(tensor):
        return (0,) * tensor.ndim, tuple(tensor.shape)
    (chunk,) = tensor.__create_chunk_list__()
    return tuple(chunk.offsets), tuple(chunk.sizes)


def cut(tensor: Tensor, box: Box) -> Tensor:
    """The elements of a tensor in a box."""
    offsets, sizes = box
    return tensor[tuple(slice(first, first + size) for first, size in zip(offsets, sizes, strict=True))]


def fill(tensor: Tensor, values: Tensor) -> None:
    """Copy values into the box of a tensor that this rank has."""
    local(tensor).copy_(values)


def placed(shape: Sequence[int], read: Callable[[Box], Tensor], parameter: Tensor | None) -> Tensor:
    """A stored tensor of the state of a parameter: this rank's part where it is spread along the parameter, or else
    all of it.

    Args:
        shape: of the stored tensor.
        read: returns its elements in a box.
    """
    whole: Box = (0,) * len(shape), tuple(shape)
    if not is_spread(parameter) or not shape or not _lies_along(shape, parameter):
        return read(whole)
    from torch.distributed import tensor as spread

    dtype = read(((0,) * len(shape), (0,) * len(shape))).dtype
    mesh, placements = parameter.device_mesh, parameter.placements
    found = spread.empty(*shape, dtype=dtype, device_mesh=mesh, placements=placements)
    fill(found, read(box_of(found)))
    return found


def _lies_along(shape: Sequence[int], parameter: DTensor) -> bool:
    """Whether a tensor has the rows (or columns) along which a parameter is spread."""
    dims = [placement.dim for placement in parameter.placements if hasattr(placement, "dim")]
    return all(dim < len(shape) and shape[dim] == parameter.shape[dim] for dim in dims)


def own_piece(tensor: Tensor, number: int, *, is_main: bool) -> Piece | None:
    """The piece of a tensor that this rank saves; None where another rank saves it, or there is nothing.

    The main rank saves what every rank has. Ranks with equal pieces take turns.

    Args:
        number: of the tensor in its model.
    """
    if not is_spread(tensor) or not tensor.numel():
        whole = local(tensor).detach().reshape(tensor.shape)
        return Piece(whole, (0,) * tensor.ndim) if is_main else None
    mesh = tensor.device_mesh
    replica, replicas = 0, 1
    for size, place, placement in zip(mesh.shape, mesh.get_coordinate() or (), tensor.placements, strict=True):
        if placement.is_replicate():
            replica, replicas = replica * size + place, replicas * size
    offsets, _ = box_of(tensor)
    values = local(tensor).detach()
    return Piece(values, offsets) if values.numel() and number % replicas == replica else None


def write_pieces(path: Path, pieces: Mapping[str, Piece]) -> str:
    """Write a file of pieces, which is on the disk when this returns; the checksum of its content.

    Raises:
        OSError: the disk is full.
    """
    offsets = {name: {"saved_offsets": list(piece.offsets)} for name, piece in pieces.items()}
    kinds = {name: (piece.values.dtype, tuple(piece.values.shape)) for name, piece in pieces.items()}
    metadata = {OFFSETS: json.dumps(offsets, sort_keys=True)}
    return _write(path, kinds, lambda name: [_bytes(pieces[name].values)], metadata)


def write_whole(path: Path, stored: StoredTensors) -> str:
    """Write a file of whole tensors, as `save_weights` does, from files of pieces. At most one tensor is in memory.

    Returns:
        The checksum of its content.

    Raises:
        OSError: the disk is full.
    """
    kinds = {name: (stored.dtype(name), stored.shapes[name]) for name in stored.own}
    return _write(path, kinds, stored.content, {TIED: json.dumps(stored.tied, sort_keys=True)})


def _write(
    path: Path,
    kinds: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
    content: Callable[[str], Iterable[memoryview]],
    metadata: dict[str, str],
) -> str:
    """Write a safetensors file tensor by tensor: the bytes that the library would write from all of them in memory."""
    order = sorted(kinds, key=lambda name: (-kinds[name][0].itemsize, name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        dtype, shape = kinds[name]
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _word(dtype), "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        head = memoryview(struct.pack("<Q", len(text)) + text)
        for part in chain([head], *map(content, order)):
            digest.update(part)
            file.write(part)
    sync(path)
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


@functools.cache
def _word(dtype: torch.dtype) -> str:
    """The name of a number type in a safetensors file."""
    content = save({"x": torch.empty(0, dtype=dtype)})
    return str(parse_json(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])["x"]["dtype"])


@dataclass
class _Listed:
    """What the headers of files say. `places` has a row for each piece of a tensor: the number of its file, its first
    byte there, its first element in the tensor, and its shape [pieces, 2 + 2 dimensions]."""

    places: dict[str, np.ndarray] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)


def _listed(files: Sequence[Path], numbers: range) -> _Listed:
    """The headers of some of the files."""
    found, rows = _Listed(), dict[str, list[tuple[int, ...]]]()
    for number in numbers:
        with opened(files[number]) as file:  # which checks that the header fits the file
            try:
                header, start = _header(files[number])
                metadata = header.pop("__metadata__", {})
                offsets = orjson.loads(metadata[OFFSETS]) if OFFSETS in metadata else None
                found.tied |= parse_json(metadata.get(TIED, "{}"))
                for name, about in header.items():
                    shape, first = about["shape"], start + about["data_offsets"][0]
                    offset = [0] * len(shape) if offsets is None else list(map(int, offsets[name]["saved_offsets"]))
                    if (
                        len(offset) != len(shape)
                        or not 0 <= min(offset, default=0) <= max(offset, default=0) < FURTHEST
                    ):
                        raise ValueError(f"{name} of shape {shape} lies at {offset}")
                    rows.setdefault(name, []).append((number, first, *offset, *shape))
                    if name not in found.dtypes:
                        found.dtypes[name] = file.get_slice(name)[(slice(0, 0),) * len(shape)].dtype
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise WorkbenchError(
                    f"{files[number]} doesn't say where its pieces lie ({error}); use another checkpoint"
                ) from error
    found.places = {name: np.array(places, np.int64) for name, places in rows.items()}
    return found


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and where its tensors begin."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return orjson.loads(file.read(size)), 8 + size


def _joined(shares: list[_Listed]) -> _Listed:
    """The headers of all files. The pieces of a tensor are in the order of their places in it."""
    names = list(dict.fromkeys(name for share in shares for name in share.places))
    places = {name: np.concatenate([share.places[name] for share in shares if name in share.places]) for name in names}
    return _Listed(
        {name: rows[np.lexsort(rows.T[:1:-1])] if rows.shape[1] > 2 else rows for name, rows in places.items()},
        {name: dtype for share in reversed(shares) for name, dtype in share.dtypes.items()},
        {name: first for share in shares for name, first in share.tied.items()},
    )


class StoredTensors(Mapping[str, Tensor]):
    """The tensors in safetensors files, in pieces or whole; nothing is read before it is asked for.

    Args:
        tied: other names of tensors, in addition to those in the files.
        world: ranks that all read these tensors. Each of them opens a share of the files to learn what they hold, and
            later those with elements that it reads.

    Attributes:
        own: the names of tensors in the files.
        shapes: of the whole tensors, by all names.

    Raises:
        WorkbenchError: a file is missing or damaged.
    """

    def __init__(self, files: Iterable[Path], tied: Mapping[str, str] | None = None, world: World = ALONE) -> None:
        self._paths = list(files)
        self._files: dict[int, Any] = {}
        self._mapped: dict[int, memoryview] = {}
        listed = world.from_shares(len(self._paths), partial(_listed, self._paths), _joined)
        self._pieces, self._dtypes, self.tied = listed.places, listed.dtypes, {**(tied or {}), **listed.tied}
        self.shapes = {name: torch.Size(self._shape(name)) for name in self._pieces}
        self.own = list(self._pieces)
        self.shapes |= {name: self.shapes[first] for name, first in self.tied.items() if first in self.shapes}

    def _shape(self, name: str) -> list[int]:
        """The shape of a tensor, from its pieces."""
        places = self._pieces[name]
        offsets, sizes = np.split(places[:, 2:], 2, axis=1)
        shape: list[int] = (offsets + sizes).max(0).tolist()
        if int(sizes.prod(1).sum()) != math.prod(shape):
            where = ", ".join(sorted({str(self._paths[number]) for number in places[:, 0]}))
            raise WorkbenchError(f"{where} lack elements of {name}; use another checkpoint")
        return shape

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __getitem__(self, name: str) -> Tensor:
        return self.read(name, ((0,) * len(self.shapes[name]), tuple(self.shapes[name])))

    def read_all(self) -> dict[str, Tensor]:
        """All tensors by all names; names that shared a tensor share it again."""
        found = {name: self[name] for name in self.own}
        return found | {name: found[first] for name, first in self.tied.items()}

    def dtype(self, name: str) -> torch.dtype:
        return self._dtypes[self.tied.get(name, name)]

    def read(self, name: str, box: Box) -> Tensor:
        """The elements of a tensor in a box.

        Raises:
            WorkbenchError: no file has some of them.
        """
        stored = self.tied.get(name, name)
        offsets, sizes = box
        values, lacking = torch.empty(sizes, dtype=self.dtype(name)), math.prod(sizes)
        for number, start, shape in self._near(stored, box):
            if (start, shape) == box:
                return self._piece(number, stored)
            low = [max(one, other) for one, other in zip(offsets, start, strict=True)]
            high = [min(o + s, p + q) for o, s, p, q in zip(offsets, sizes, start, shape, strict=True)]
            if all(first < end for first, end in zip(low, high, strict=True)):
                there, here = (
                    tuple(slice(first - o, end - o) for first, end, o in zip(low, high, origin, strict=True))
                    for origin in (start, offsets)
                )
                values[here] = self._file(number).get_slice(stored)[there]
                lacking -= math.prod(end - first for first, end in zip(low, high, strict=True))
        if lacking > 0:
            where = self._paths[int(self._pieces[stored][0, 0])].parent
            raise WorkbenchError(f"{where} lacks elements of {name}; use another checkpoint")
        return values

    def _near(self, name: str, box: Box) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """The pieces with rows of a box: the number of the file of each, its first element and its shape."""
        places, dimensions = self._pieces[name], len(box[0])
        if dimensions:  # the pieces are in the order of their first rows
            first, rows = box[0][0], box[1][0]
            longest = int(places[:, 2 + dimensions].max())
            low, high = np.searchsorted(places[:, 2], [first - longest + 1, first + max(rows, 1)]).tolist()
            places = places[low:high]
        for number, _, *numbers in places.tolist():
            yield number, tuple(numbers[:dimensions]), tuple(numbers[dimensions:])

    def mapped(self, name: str) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        """The pieces of a tensor, each with its place. They are mapped into memory: a page is read when it is used."""
        for number, _, *numbers in self._pieces[name].tolist():
            yield tuple(numbers[: len(numbers) // 2]), self._piece(number, name)

    def content(self, name: str) -> Iterator[memoryview]:
        """The bytes of a tensor, in the pieces of its files where these are consecutive rows, or else as a whole."""
        places, shape = self._pieces[name], self.shapes[name]
        if (places[:, 3 + len(shape) :] == shape[1:]).all():
            sizes = places[:, 2 + len(shape) :].prod(1) * self.dtype(name).itemsize
            for number, first, end in zip(
                *(each.tolist() for each in (*places.T[:2], places[:, 1] + sizes)), strict=True
            ):
                yield self._view(number)[first:end]
        else:
            yield _bytes(self[name])

    def _view(self, number: int) -> memoryview:
        """The bytes of a file, mapped into memory."""
        if number not in self._mapped:
            with self._paths[number].open("rb") as file:
                self._mapped[number] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return self._mapped[number]

    def _piece(self, number: int, name: str) -> Tensor:
        """All that a file has of a tensor."""
        piece: Tensor = self._file(number).get_tensor(name)
        return piece

    def _file(self, number: int) -> Any:
        if number not in self._files:
            self._files[number] = safe_open(self._paths[number], framework="pt")
        return self._files[number]

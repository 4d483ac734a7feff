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
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sync
from workbench.core.files.text_files import parse_json
from workbench.runs.weights import TIED, opened

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor  # its import takes 0.4 s, which only sharded runs need

OFFSETS = "DCP_SHARDING_INFO"
"""The key of a file's metadata with the places of its pieces: `{name: {"saved_offsets": [row, column]}}`."""
Box = tuple[tuple[int, ...], tuple[int, ...]]
"""The place of a piece's first element in its tensor, and the piece's shape."""


@dataclass(frozen=True)
class Piece:
    """The elements of a tensor from `offsets` on."""

    values: Tensor
    offsets: tuple[int, ...]


def is_spread(tensor: Any) -> TypeGuard[DTensor]:
    """Whether a tensor is spread over ranks."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "placements")


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
    _local(tensor).copy_(values)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if is_spread(tensor) else tensor


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
        whole = _local(tensor).detach().reshape(tensor.shape)
        return Piece(whole, (0,) * tensor.ndim) if is_main else None
    mesh = tensor.device_mesh
    replica, replicas = 0, 1
    for size, place, placement in zip(mesh.shape, mesh.get_coordinate() or (), tensor.placements, strict=True):
        if placement.is_replicate():
            replica, replicas = replica * size + place, replicas * size
    offsets, _ = box_of(tensor)
    values = _local(tensor).detach()
    return Piece(values, offsets) if values.numel() and number % replicas == replica else None


def write_pieces(path: Path, pieces: Mapping[str, Piece]) -> str:
    """Write a file of pieces, which is on the disk when this returns; the checksum of its content.

    Raises:
        OSError: the disk is full.
    """
    offsets = {name: {"saved_offsets": list(piece.offsets)} for name, piece in pieces.items()}
    kinds = {name: (piece.values.dtype, tuple(piece.values.shape)) for name, piece in pieces.items()}
    metadata = {OFFSETS: json.dumps(offsets, sort_keys=True)}
    return _write(path, kinds, lambda name: [pieces[name].values], metadata)


def write_whole(path: Path, stored: StoredTensors) -> str:
    """Write a file of whole tensors, as `save_weights` does, from files of pieces. At most one tensor is in memory.

    Returns:
        The checksum of its content.

    Raises:
        OSError: the disk is full.
    """
    kinds = {name: (stored.dtype(name), stored.shapes[name]) for name in stored.own}
    return _write(path, kinds, stored.rows, {TIED: json.dumps(stored.tied, sort_keys=True)})


def _write(
    path: Path,
    kinds: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
    values: Callable[[str], Iterable[Tensor]],
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
        for part in (struct.pack("<Q", len(text)), text):
            digest.update(part)
            file.write(part)
        for name in order:
            for tensor in values(name):
                content = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
                digest.update(content)
                file.write(content)
    sync(path)
    return digest.hexdigest()


@functools.cache
def _word(dtype: torch.dtype) -> str:
    """The name of a number type in a safetensors file."""
    content = save({"x": torch.empty(0, dtype=dtype)})
    return str(parse_json(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])["x"]["dtype"])


class StoredTensors(Mapping[str, Tensor]):
    """The tensors in safetensors files, in pieces or whole; nothing is read before it is asked for.

    Args:
        tied: other names of tensors, in addition to those in the files.

    Attributes:
        own: the names of tensors in the files.
        shapes: of the whole tensors, by all names.

    Raises:
        WorkbenchError: a file is missing or damaged.
    """

    def __init__(self, files: Iterable[Path], tied: Mapping[str, str] | None = None) -> None:
        self._files: dict[Path, Any] = {}
        self._pieces: dict[str, list[tuple[Path, Box]]] = {}
        self.shapes: dict[str, torch.Size] = {}
        self.tied = dict(tied or {})
        for path in files:
            with opened(path) as file:
                self._add(path, file)
        for name, pieces in self._pieces.items():
            self.shapes[name] = torch.Size(_ends(pieces))
            if sum(math.prod(shape) for _, (_, shape) in pieces) != math.prod(self.shapes[name]):
                where = ", ".join(sorted({str(path) for path, _ in pieces}))
                raise WorkbenchError(f"{where} lack elements of {name}; use another checkpoint")
        self.own = list(self._pieces)
        self.shapes |= {name: self.shapes[first] for name, first in self.tied.items() if first in self.shapes}

    def _add(self, path: Path, file: Any) -> None:
        try:
            metadata = file.metadata() or {}
            offsets = parse_json(metadata[OFFSETS]) if OFFSETS in metadata else None
            self.tied |= parse_json(metadata.get(TIED, "{}"))
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                shape = tuple(file.get_slice(name).get_shape())
                offset = (0,) * len(shape) if offsets is None else tuple(map(int, offsets[name]["saved_offsets"]))
                if len(offset) != len(shape) or min(offset, default=0) < 0:
                    raise ValueError(f"{name} of shape {shape} lies at {offset}")
                self._pieces.setdefault(name, []).append((path, (offset, shape)))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise WorkbenchError(
                f"{path} doesn't say where its pieces lie ({error}); use another checkpoint"
            ) from error

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
        path, (offsets, _) = self._pieces[self.tied.get(name, name)][0]
        part = self._file(path).get_slice(self.tied.get(name, name))
        dtype: torch.dtype = part[(slice(0, 0),) * len(offsets)].dtype
        return dtype

    def read(self, name: str, box: Box) -> Tensor:
        """The elements of a tensor in a box.

        Raises:
            WorkbenchError: no file has some of them.
        """
        stored = self.tied.get(name, name)
        offsets, sizes = box
        values, lacking = torch.empty(sizes, dtype=self.dtype(name)), math.prod(sizes)
        for path, (start, shape) in self._pieces[stored]:
            if (start, shape) == box:
                piece: Tensor = self._file(path).get_tensor(stored)
                return piece
            low = [max(one, other) for one, other in zip(offsets, start, strict=True)]
            high = [min(o + s, p + q) for o, s, p, q in zip(offsets, sizes, start, shape, strict=True)]
            if all(first < end for first, end in zip(low, high, strict=True)):
                there, here = (
                    tuple(slice(first - o, end - o) for first, end, o in zip(low, high, origin, strict=True))
                    for origin in (start, offsets)
                )
                values[here] = self._file(path).get_slice(stored)[there]
                lacking -= math.prod(end - first for first, end in zip(low, high, strict=True))
        if lacking > 0:
            raise WorkbenchError(
                f"{self._pieces[stored][0][0].parent} lacks elements of {name}; use another checkpoint"
            )
        return values

    def mapped(self, name: str) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        """The pieces of a tensor, each with its place. They are mapped into memory: a page is read when it is used."""
        for path, (offsets, _) in self._pieces[name]:
            yield offsets, self._file(path).get_tensor(name)

    def rows(self, name: str) -> Iterator[Tensor]:
        """A tensor in the pieces of its files where these are consecutive rows, or else as a whole."""
        shape, pieces = self.shapes[name], sorted(self._pieces[name], key=lambda piece: piece[1])
        if all(box[1][1:] == shape[1:] for _, box in pieces):
            yield from (self.read(name, box) for _, box in pieces)
        else:
            yield self[name]

    def _file(self, path: Path) -> Any:
        if path not in self._files:
            self._files[path] = safe_open(path, framework="pt")
        return self._files[path]


def _ends(pieces: Iterable[tuple[Path, Box]]) -> list[int]:
    """The shape of a tensor, from its pieces."""
    ends = [[first + size for first, size in zip(*box, strict=True)] for _, box in pieces]
    return [max(each) for each in zip(*ends, strict=True)]

"""Values sent from one process to another through a socket: a pickle, followed by the bytes of the tensors in it.

They need neither a file in /dev/shm nor an open file. The kernel copies each tensor once, into the buffer where it
stays.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from workbench.sequences.flat import FlatTensor, can_lie_flat, laid_out, padded, views

HEAD = struct.Struct("<QQ")
"""The bytes of the pickle with the tensors' places, and those of the tensors."""


def packed(value: Any) -> list[Any]:
    """A value as bytes and arrays of bytes to be sent one after the other.

    Raises:
        Exception: the value cannot be pickled.
    """
    pickled = io.BytesIO()
    pickler = _Pickler(pickled, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dump(value)
    parts, size = laid_out(pickler.tensors)
    words = pickle.dumps((pickled.getvalue(), parts), protocol=pickle.HIGHEST_PROTOCOL)
    sent: list[Any] = [HEAD.pack(len(words), size) + words]
    for tensor in pickler.tensors:
        sent.append(tensor.reshape(-1).view(torch.uint8).numpy())
        sent.append(bytes(padded(tensor.nbytes) - tensor.nbytes))
    return sent


def send(to: socket.socket, parts: Iterable[Any]) -> None:
    for part in parts:
        to.sendall(part)


def receive(source: socket.socket) -> tuple[Any, Tensor] | None:
    """A value, and the buffer [bytes] of its tensors; None where the other side has ended."""
    head = bytearray(HEAD.size)
    if not _filled(source, memoryview(head)):
        return None
    length, size = HEAD.unpack(head)
    words = bytearray(length)
    buffer = torch.empty(size, dtype=torch.uint8)
    if not (_filled(source, memoryview(words)) and _filled(source, buffer.numpy().data)):
        return None
    pickled, parts = pickle.loads(words)
    return _Unpickler(pickled, buffer, parts).load(), buffer


def _filled(source: socket.socket, place: memoryview) -> bool:
    """Whether as many bytes arrived as the place holds. The wait is in the kernel, where it blocks no thread."""
    while len(place):
        try:
            received = source.recv_into(place, len(place), socket.MSG_WAITALL)
        except ConnectionError:
            return False
        if not received:
            return False
        place = place[received:]
    return True


class _Pickler(pickle.Pickler):
    """Leaves out tensors that can be stored in a buffer, and records them; each once, however often it occurs."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.tensors: list[Tensor] = []
        self._known: dict[int, tuple[int, Tensor]] = {}

    def persistent_id(self, found: Any) -> int | None:
        if not (isinstance(found, Tensor) and can_lie_flat(found)):
            return None
        if id(found) not in self._known:
            self._known[id(found)] = len(self.tensors), found
            self.tensors.append(found.contiguous())
        return self._known[id(found)][0]


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: bytes, buffer: Tensor, parts: list[FlatTensor]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._tensors = views(buffer, parts)

    def persistent_load(self, number: int) -> Tensor:
        return self._tensors[number]

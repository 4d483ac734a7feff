"""The values that loader workers have made, until they are taken.

They arrive in plain memory. For CUDA those that are taken next are copied to pinned memory, from which a device copies
by itself. Pinned memory cannot be swapped, and torch takes it in powers of two: no more is pinned than is needed soon.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from workbench.sequences.batch import MicroBatch

Arrival = tuple[Any, Tensor]
"""A value, and the buffer [bytes] of its tensors."""


class Arrivals:
    """Values by their tickets, put by the thread that receives them and taken by another.

    Args:
        pins: whether a value is pinned before it is ready.

    Attributes:
        news: notified when a value is ready.
        largest: bytes of the largest value so far.
    """

    def __init__(self, *, pins: bool) -> None:
        self.news = threading.Condition()
        self.largest = 0
        self._pins = pins
        self._plain: dict[int, Arrival] = {}
        self._ready: dict[int, Arrival] = {}
        self._near: set[int] = set()

    def put(self, ticket: int, arrival: Arrival) -> None:
        """Keep a value that has arrived."""
        self.largest = max(self.largest, arrival[1].nbytes)
        (self._plain if self._pins else self._ready)[ticket] = arrival

    def approach(self, tickets: Iterable[int]) -> bool:
        """Say which values are taken next; whether any of them is to be pinned, by `pin`."""
        if not self._pins:
            return False
        with self.news:
            self._near |= {*tickets} - self._ready.keys()
            return bool(self._near)

    def pin(self) -> None:
        """Pin the values that have arrived and are taken next."""
        with self.news:
            found = {ticket: self._plain.pop(ticket) for ticket in sorted(self._near & self._plain.keys())}
            self._near -= found.keys()
        for ticket, (value, buffer) in found.items():
            if isinstance(value, MicroBatch):
                value = value.pin_memory()
            with self.news:
                self._ready[ticket] = value, getattr(value, "buffer", buffer)
                self.news.notify_all()

    def has(self, ticket: int) -> bool:
        """Whether the value is ready."""
        return ticket in self._ready

    def look_at(self, ticket: int) -> Arrival:
        """A value that is ready; it stays."""
        return self._ready[ticket]

    def take(self, ticket: int) -> Arrival:
        """A value that is ready, for the last time."""
        return self._ready.pop(ticket)

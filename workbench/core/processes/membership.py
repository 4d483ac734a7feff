"""How ranks meet and notice each other: generations of ranks, heartbeats, and the names of ranks that are missing.

Everything goes through torch's TCPStore, which torchrun's agent or rank 0 holds. torch alone reuses the keys of an
earlier attempt, so restarted ranks read the addresses of dead ones and wait for them (pytorch issues 135712, 167302).
A count of restarts does not identify an attempt, since every torchrun agent has its own.

A **generation** is one set of `size` processes. A process enters the current generation under its rank. Where another
process already has that rank, or another size, the generation is over: the newcomer starts the next one. Processes
that still wait enter the next generation as well; processes of a finished one end. So all ranks of a complete
generation are processes that have found each other, whoever was killed or restarted, and however often.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.processes.launch import PATIENCE, Launch, patience
from workbench.core.processes.signals import WATCHED

logger = logging.getLogger(__name__)
PREFIX = "workbench"
GENERATION = "generation"
LONGEST_PAUSE = 0.25
"""Seconds between two looks at the store, at most."""
ENDS_WITHIN, ANSWERS_WITHIN = 1.0, 10.0
"""Seconds in which the heartbeat must end, and in which the store must answer who is missing."""
SILENT = 60.0
"""Seconds without a heartbeat after which rank 0 names a rank; half of the patience, where that is less."""
SHOWN = 8
LEFT = -1
"""The number of the last heartbeat, of a rank that ends."""


_stores: dict[tuple[str, int], tuple[dist.Store, dist.Store]] = {}
"""The connections of this process by address and port. Rank 0 holds its store until the process ends."""
_joined: dict[tuple[object, ...], tuple[int, int]] = {}
"""How often this process has joined the others, and its generation: one process may train several times."""


class LostRanksError(MachineError):
    """Other ranks ended or do not answer."""


class Membership:
    """This process as a rank of a generation.

    Attributes:
        store: keys of this generation alone, for the process group.
        local_rank, local_size: as the launcher says; where it does not, found by host names.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.patience = timedelta(seconds=patience(os.environ))
        self.host = socket.gethostname()
        self.step, self.calls, self._ended = 0, 0, ""
        server, self._client = _connected(launch, self.patience)
        place = launch.address, launch.port, launch.rank, launch.size
        number, self.generation = _joined.get(place, (0, -1))
        if self.generation < 0:
            self.generation = self._enter()
        _joined[place] = number + 1, self.generation
        keys = f"{PREFIX}/{self.generation}/{number}"
        self._keys = dist.PrefixStore(f"{keys}/ranks", self._client)
        self.store = dist.PrefixStore(f"{keys}/group", server)
        self._keys.set(f"beat/{launch.rank}", self._beat(0))
        self._meet("begun")
        self.local_rank, self.local_size = self._local()
        self._left = threading.Event()
        self._every = min(1.0, self.patience.total_seconds() / 10)
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
        self._thread.start()

    def _enter(self) -> int:
        """The generation that this process belongs to, once it is complete."""
        rank, size, client = self.launch.rank, self.launch.size, dist.PrefixStore(PREFIX, self._client)
        deadline = time.monotonic() + self.patience.total_seconds()
        mine = f"{uuid.uuid4().hex} {self.host} {os.getpid()}"
        reason = ""
        while time.monotonic() < deadline:
            number = self._current()
            keys = dist.PrefixStore(str(number), client)
            sizes = keys.compare_set("size", "", str(size)).decode()
            if sizes != str(size):
                reason = f"another process counts {sizes} ranks"
            elif keys.compare_set(f"member/{rank}", "", mine).decode() == mine:
                if keys.add("members", 1) == size:
                    keys.set("complete", "1")
                if self._wait(keys, "complete", number):
                    return number
                continue
            client.compare_set(GENERATION, str(number), str(number + 1))
        there = [other for other in range(size) if keys.check([f"member/{other}"])]
        missing = _listed([f"rank {other}" for other in range(size) if other not in there])
        raise LostRanksError(
            f"rank {rank} of {size} ({self.host}) waited {self.patience.total_seconds():.0f} seconds for the others: "
            f"{reason or f'{missing} did not come'}. Look at the output of their nodes, start all ranks with the same "
            f"numbers, or raise {PATIENCE}"
        )

    def _wait(self, keys: dist.Store, name: str, number: int) -> bool:
        """Wait for a key while generation `number` lasts; False where that is over, or patience is."""
        deadline, pause = time.monotonic() + self.patience.total_seconds(), 0.01
        while not keys.check([name]):
            if self._current() != number or time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, 1.5 * pause)
        return self._current() == number

    def _current(self) -> int:
        """The number of the current generation."""
        return int(dist.PrefixStore(PREFIX, self._client).compare_set(GENERATION, "", "0"))

    def _local(self) -> tuple[int, int]:
        """The rank among the processes of this node, and their number.

        Raises:
            WorkbenchError: the launcher sets no local rank, and several processes run on this node.
        """
        rank, size = self.launch.local_rank, self.launch.local_size
        if size is None:
            self._keys.add(f"host/{self.host}", 1)
            self._meet("counted")
            size = self._keys.add(f"host/{self.host}", 0)
        if rank is None and size > 1:
            raise WorkbenchError(
                f"{size} processes run on {self.host}, and LOCAL_RANK is not set: each would use the first GPU. Start "
                f"them by torchrun --nproc-per-node {size}, or set LOCAL_RANK and LOCAL_WORLD_SIZE"
            )
        return rank or 0, size

    def _meet(self, name: str) -> None:
        """Wait until every rank has come here.

        Raises:
            LostRanksError: a rank did not come, or another process was started in its place.
        """
        if self._keys.add(name, 1) == self.launch.size:
            self._keys.set(f"{name}/all", "1")
        if not self._wait(self._keys, f"{name}/all", self.generation):
            raise LostRanksError(f"rank {self.launch.rank} of {self.launch.size} lost the others while it joined them")

    def leave(self, error: BaseException | None = None) -> None:
        """Stop the heartbeat at the end of a run, with the reason where it failed."""
        if error is not None:
            self._ended = type(error).__name__
        self._left.set()
        self._thread.join(ENDS_WITHIN)

    def _beat(self, number: int) -> str:
        about = {"host": self.host, "pid": os.getpid(), "beat": number}
        return json.dumps({**about, "step": self.step, "calls": self.calls, "ended": self._ended})

    def _watch(self) -> None:
        """Send heartbeats until this process leaves, and end it when its generation is over."""
        with suppress(RuntimeError):  # the store has ended, with rank 0 or with its agent
            number, calls, since, warned = 1, self.calls, time.monotonic(), False
            silence = _Silence(min(SILENT, self.patience.total_seconds() / 2))
            while not self._left.wait(self._every):
                self._keys.set(f"beat/{self.launch.rank}", self._beat(number))
                number += 1
                if self.launch.rank == 0 and silence.is_due() and (silent := silence.named(self._beats())):
                    logger.warning(
                        "%s for %.0f seconds. Look at its node: the others wait until %s (%.0f seconds) has passed",
                        *(_listed(silent), silence.seconds, PATIENCE, self.patience.total_seconds()),
                    )
                if self._current() != self.generation and not self._left.is_set():
                    self._end()
                if self.calls != calls:
                    calls, since, warned = self.calls, time.monotonic(), False
                elif not warned and time.monotonic() - since > 0.8 * self.patience.total_seconds():
                    warned = True
                    if missing := self._missing():
                        logger.warning("waiting for %s", missing)
            self._keys.set(f"beat/{self.launch.rank}", self._beat(LEFT))

    def _end(self) -> None:
        """End the process: the others wait for a process that is gone, or are gone themselves."""
        logger.error(
            "rank %d of %d (%s) ends, since another process was started in the place of a rank; the new one continues",
            self.launch.rank,
            self.launch.size,
            self.host,
        )
        os._exit(1)

    def missing(self) -> str:
        """The ranks that are the reason why a collective operation failed, with their hosts; "" if unknown.

        These are ranks that ended with an error of their own. Otherwise these are ranks without a heartbeat, then ranks
        that ended since they lost others, too, and then ranks that have come to fewer operations than the others.
        """
        found: list[str] = []

        def look() -> None:
            with suppress(RuntimeError):
                found.append(self._missing())

        # a thread of its own, as the store of a dead node never answers
        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        looking.join(ANSWERS_WITHIN)
        holder = "torchrun's agent" if self.launch.shares_store else "rank 0"
        return found[0] if found else f"{holder} on {self.launch.address} does not answer"

    def _missing(self) -> str:
        before = self._beats()
        if failed := _failed(before):
            return _listed(failed)
        self._left.wait(2.5 * self._every)
        after = self._beats()
        others = [(rank, beat) for rank, beat in enumerate(after) if rank != self.launch.rank]
        there = [(rank, beat) for rank, beat in others if beat["beat"] != LEFT]
        silent = [_named(*each, "sends no heartbeat") for each in there if each[1]["beat"] == before[each[0]]["beat"]]
        left = [_named(*each, f"ended {_how(each[1])}") for each in others if each not in there]
        most = max(self.calls, *(beat["calls"] for _, beat in others))
        behind = [_named(*each, "is behind") for each in there if each[1]["calls"] < most]
        return _listed(_failed(after) or silent or left or behind)

    def _beats(self) -> list[dict[str, Any]]:
        """The last heartbeat of each rank."""
        keys = [f"beat/{rank}" for rank in range(self.launch.size)]
        return [json.loads(beat) for beat in self._keys.multi_get(keys)]


class _Silence:
    """Finds the ranks that have sent no heartbeat for some seconds. It names each once, until its heart beats again.

    One process looks for all, six times in these seconds, so that the store answers few questions.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._next = 0.0
        self._heard: dict[int, tuple[int, float]] = {}

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self.seconds / 6
        return True

    def named(self, beats: list[dict[str, Any]]) -> list[str]:
        now, found = time.monotonic(), []
        for rank, beat in enumerate(beats):
            last: int = beat["beat"]
            number, since = self._heard.get(rank, (None, now))
            if last != number:
                self._heard[rank] = last, now
            elif last != LEFT and now - since > self.seconds:
                self._heard[rank] = last, math.inf
                found.append(_named(rank, beat, "has sent no heartbeat"))
        return found


def _failed(beats: list[dict[str, Any]]) -> list[str]:
    """The ranks that ended with an error of their own, and not since they lost others."""
    ended = [(rank, beat) for rank, beat in enumerate(beats) if beat["ended"] not in ("", LostRanksError.__name__)]
    return [_named(rank, beat, f"ended {_how(beat)}") for rank, beat in ended]


def _how(beat: dict[str, Any]) -> str:
    return f"with {beat['ended']}" if beat["ended"] else "without an error"


def _named(rank: int, beat: dict[str, Any], state: str) -> str:
    return f"rank {rank} ({beat['host']}, process {beat['pid']}, step {beat['step']}) {state}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _connected(launch: Launch, wait: timedelta) -> tuple[dist.Store, dist.Store]:
    """Two connections to the store: one for the process group, and one for the heartbeat.

    Raises:
        LostRanksError: rank 0 is not reached.
    """
    place = launch.address, launch.port
    if place in _stores:
        return _stores[place]
    holds = launch.rank == 0 and not launch.shares_store
    try:
        server, client = (
            dist.TCPStore(
                *place,
                is_master=holds and first,
                timeout=wait,
                wait_for_workers=False,
                multi_tenant=True,
            )
            for first in (True, False)
        )
    except RuntimeError as error:
        raise LostRanksError(
            f"rank {launch.rank} of {launch.size} ({socket.gethostname()}) does not reach {launch.address}:"
            f"{launch.port}, where rank 0 or torchrun's agent should listen ({str(error).splitlines()[0]}). Check "
            f"MASTER_ADDR and MASTER_PORT, the network and its firewall, and that rank 0 was started"
        ) from error
    _stores[place] = server, client
    return server, client


@contextmanager
def ends_at_once() -> Iterator[None]:
    """A block in which a signal ends the process at once: torch waits in C++, where no handler of Python runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in WATCHED}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

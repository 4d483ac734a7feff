"""A lock for one writer per folder of an object store: a small file with its owner and a counter that goes up.

Where the store writes a new file exclusively (S3, Google Cloud, Azure), two writers never both create the lock. A
writer that finds a lock watches it. If the counter goes up, the owner lives and the folder is in use. If it stands
still for `STALE` seconds, or its process has ended on this machine, the lock is taken over.

A store has no locks, so one case is left. An owner may be cut off from the store for longer than `STALE` seconds and
come back. It learns of the other writer at its next beat or commit (`check`), and stops. A commit that it made within
the moment between that look and its writing would stay.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import Store
from workbench.core.files.text_files import parse_json
from workbench.core.local_copies import with_urls

logger = logging.getLogger(__name__)
NAME = "lock.json"
BEAT, STALE, SETTLE, POLL = 20.0, 70.0, 2.0, 1.0
"""Seconds between beats; without a beat until a lock is taken over; until a take-over is read again; between looks."""


_writing = threading.Lock()  # held over a fork, so that no child inherits a half-written request


def _leave() -> None:
    _writing.__exit__(None, None, None)


os.register_at_fork(before=_writing.__enter__, after_in_parent=_leave, after_in_child=_leave)


class StoreLock:
    """The lock of a folder. Between `start` and `end` a thread writes the counter."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.token = uuid.uuid4().hex
        self._since, self._beats = time.strftime("%F %T"), 0
        self._ended = threading.Event()
        self._taken = ""

    def start(self) -> None:
        """
        Raises:
            WorkbenchError: another process works in the folder; the message says which.
        """
        while not self.store.put_bytes(self._content(), NAME, new=True):
            holder = self._read()
            if holder is None:
                continue
            if holder.get("token") == self.token:  # its answer was lost, and it was written twice
                break
            if not _ended_here(holder):
                self._watch(holder)
            logger.warning("%s: taking over the lock of %s, which has ended", self.store, _described(holder))
            self.store.put_bytes(self._content(), NAME)
            time.sleep(SETTLE)
            break
        self.check()
        threading.Thread(target=self._beat, name="store lock", daemon=True).start()

    def end(self) -> None:
        """Remove the lock if it is still this one."""
        self._ended.set()
        with _writing, suppress(WorkbenchError):
            holder = self._read()
            if holder is not None and holder.get("token") == self.token:
                self.store.remove([NAME])

    def check(self) -> None:
        """Look at the lock in the store.

        Raises:
            WorkbenchError: another process has taken it over.
        """
        holder = self._read()
        if holder is None or holder.get("token") != self.token:
            self._taken = "removed" if holder is None else f"taken over by {_described(holder)}"
        self.check_beats()

    def check_beats(self) -> None:
        """As `check`, as far as the last beat has seen; nothing is read.

        Raises:
            WorkbenchError: another process has taken it over.
        """
        if self._taken:
            raise WorkbenchError(
                f"{self.store}: the lock of this process was {self._taken}. Two processes must not write there: this "
                "one stops, and wrote nothing since its last save"
            )

    def _watch(self, holder: dict[str, Any]) -> None:
        """Wait until a lock is surely stale.

        Raises:
            WorkbenchError: its owner lives.
        """
        logger.warning("%s is locked by %s; watching its lock for %g s", self.store, _described(holder), STALE)
        until = time.monotonic() + STALE
        while time.monotonic() < until:
            time.sleep(POLL)
            now = self._read()
            if now is None:
                return
            if now != holder:
                raise WorkbenchError(
                    f"{self.store} is in use: {_described(now)}. Wait until it ends, stop it, or choose another place"
                )

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            with _writing, suppress(WorkbenchError):  # a beat that fails is made up for by the next
                if self._ended.is_set():
                    return
                holder = self._read()
                if holder is None or holder.get("token") != self.token:
                    self._taken = "removed" if holder is None else f"taken over by {_described(holder)}"
                    return
                self._beats += 1
                self.store.put_bytes(self._content(), NAME)

    def _content(self) -> bytes:
        about = {"host": socket.gethostname(), "machine": _machine(), "pid": os.getpid(), "since": self._since}
        about["command"] = with_urls(sys.argv)
        return json.dumps({"token": self.token, "beats": self._beats, **about}).encode()

    def _read(self) -> dict[str, Any] | None:
        data = self.store.read(NAME)
        if data is None:
            return None
        try:
            found = parse_json(data)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}


def _ended_here(holder: dict[str, Any]) -> bool:
    """Whether the owner was a process of this machine that has ended."""
    pid = holder.get("pid")
    same = (holder.get("host"), holder.get("machine")) == (socket.gethostname(), _machine())
    return same and isinstance(pid, int) and not psutil.pid_exists(pid)


def _machine() -> str:
    """What two machines, or two containers, of one host name differ in: the boot and the numbers of processes."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _described(holder: dict[str, Any]) -> str:
    command = holder.get("command")
    words = " ".join(map(str, command)) if isinstance(command, list) else "unknown command"
    return f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')} ({words})"


@contextmanager
def store_locked(store: Store) -> Iterator[StoreLock]:
    """A block in which this process holds the lock of a folder.

    Raises:
        WorkbenchError: another process holds it.
    """
    lock = StoreLock(store)
    lock.start()
    try:
        yield lock
    finally:
        lock.end()

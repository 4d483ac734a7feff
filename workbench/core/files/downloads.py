"""Downloads in the background: a few threads of this process, which fetch files into the cache before they are needed.

A fork ends the threads first, as a child of a process with threads may inherit a lock that nobody opens: downloads are
cancelled, and asked for again by whoever needs them. So a child never meets the threads of its parent.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence

from workbench.core.files.cache import BusyError, FileCache, HeldCopy, NoRoomError, RemoteFile, close_spare
from workbench.core.files.transfers import AbandonedError

THREADS = 4
"""Downloads of a process at a time."""
IDLE = 5.0
"""Seconds without work after which a thread ends."""
BUSY = 0.1
"""Seconds before another look at files that other processes fetch."""


class Download:
    """The download of a file. `copy` is held when it is done; `error` is raised where the file is used. While a thread
    fetches it, it is `running`.

    Args:
        after: downloads that are needed earlier: this one does not take their share of the network.
    """

    def __init__(self, cache: FileCache, file: RemoteFile, after: Sequence[Download] = ()) -> None:
        self.cache, self.file, self._after = cache, file, list(after)
        self.copy: HeldCopy | None = None
        self.error: Exception | None = None
        self.running = False
        self.ended = threading.Event()

    @property
    def may_begin(self) -> bool:
        self._after = [earlier for earlier in self._after if not earlier.ended.is_set()]
        return not self._after

    def run(self, stop: threading.Event) -> bool:
        """Fetch the file. False if another process does so at the moment."""
        self.running = True
        try:
            self.copy = self.cache.hold(self.file, ahead=True, stop=stop)
        except BusyError:
            self.running = False
            return False
        except (NoRoomError, AbandonedError):
            pass  # it is fetched when it is used
        except Exception as error:
            self.error = error
        self.running = False
        self.ended.set()
        return True


class DownloadPool:
    """The threads of this process, and the downloads that wait for one of them."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._waiting: deque[Download] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._stop = threading.Event()

    def add(self, download: Download) -> None:
        """Queue a download."""
        with self._news:
            self._waiting.append(download)
            self._wake()

    def _wake(self) -> None:
        if len(self._threads) < THREADS and self._idle < len(self._waiting):
            thread = threading.Thread(target=self._work, name="download", daemon=True)
            self._threads.add(thread)
            thread.start()
        self._news.notify_all()

    def copy(self, download: Download) -> HeldCopy:
        """The copy of a download that is needed now. A running one is waited for. The caller runs one that has not
        begun.

        Raises:
            Exception: see `FileCache.hold`.
        """
        with self._news:
            waits = download in self._waiting
            if waits:
                self._waiting.remove(download)
        if not waits:
            download.ended.wait()
        if download.error is not None:
            raise download.error
        if download.copy is None:
            try:
                download.copy = download.cache.hold(download.file)
            finally:
                download.ended.set()
                with self._news:
                    self._wake()
        return download.copy

    def cancel(self, download: Download) -> None:
        """Forget a download that has not begun."""
        with self._news:
            if download in self._waiting:
                self._waiting.remove(download)
                download.ended.set()

    def stop(self) -> None:
        """End the threads; what they download is abandoned."""
        self._stop.set()
        with self._news:
            for download in self._waiting:
                download.ended.set()
            self._waiting.clear()
            threads = list(self._threads)
            self._news.notify_all()
        for thread in threads:
            thread.join()
        self._stop = threading.Event()

    def _work(self) -> None:
        stop = self._stop
        while (download := self._next(stop)) is not None:
            if not download.run(stop):
                with self._news:
                    if stop.is_set():
                        download.ended.set()
                    else:
                        self._waiting.append(download)
                stop.wait(BUSY)

    def _next(self, stop: threading.Event) -> Download | None:
        """The next download; None if this thread shall end."""
        with self._news:
            while not stop.is_set():
                ready = next((each for each in self._waiting if each.may_begin), None)
                if ready is not None:
                    self._waiting.remove(ready)
                    return ready
                self._idle += 1
                woken = self._news.wait(IDLE)
                self._idle -= 1
                if not woken and not self._waiting:
                    break
            self._threads.discard(threading.current_thread())
            return None


_pool = DownloadPool()


def pool() -> DownloadPool:
    """The pool of this process."""
    return _pool


def _before_fork() -> None:
    _pool.stop()
    close_spare()


def _in_child() -> None:
    global _pool
    _pool = DownloadPool()


os.register_at_fork(before=_before_fork, after_in_child=_in_child)

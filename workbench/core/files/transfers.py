"""Reading files of object stores: bounded waiting, and repeated tries.

A try ends when no byte arrives for a while (connecting included), whatever the library of the store does itself. The
read runs under a watchdog, which cancels it: on the event loop of fsspec for asynchronous file systems (s3, gs,
https), or in a thread that is abandoned for the others. Between tries the wait doubles, with jitter, so that many
processes don't return to a busy server at once. What another try can't change (a missing file, no access, a wrong
address) is refused at once.

The bounds are variables of the environment (`StoreOptions`). A silent store ends a read within
`StoreOptions.longest_silence` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import logging
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.asyn import AsyncFileSystem, get_loop

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files.drafts import CHUNK
from workbench.core.files.urls import check_url
from workbench.core.url_secrets import HIDDEN, HOW_TO_GIVE, is_cut, without_secrets

logger = logging.getLogger(__name__)
T = TypeVar("T")
TIMEOUT, TRIES, LIMIT = "WORKBENCH_STORE_TIMEOUT", "WORKBENCH_STORE_TRIES", "WORKBENCH_CACHE_LIMIT"
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds before the second try, and at most before any other; each wait is 50 to 100 % of its length."""
POLL = 0.05
SHOWN = 400
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


@dataclass(frozen=True)
class StoreOptions:
    """How object stores are read; each option is a variable of the environment.

    Args:
        timeout: $WORKBENCH_STORE_TIMEOUT, seconds without a byte after which a try ends, 0.1 to 3600.
        tries: $WORKBENCH_STORE_TRIES, tries of a file, 1 to 100.
        limit: $WORKBENCH_CACHE_LIMIT, bytes of the cache of a node (`200GB`, `1.5TiB`); None for no limit.
    """

    timeout: float = 30.0
    tries: int = 5
    limit: int | None = None

    @classmethod
    def of_environment(cls) -> StoreOptions:
        """
        Raises:
            WorkbenchError: a variable has a value that is not allowed.
        """
        timeout, tries = _number(TIMEOUT, cls.timeout, 0.1, 3600), _number(TRIES, cls.tries, 1, 100)
        if tries != int(tries):
            raise WorkbenchError(f"{TRIES} = {tries}: tries are a whole number, such as {cls.tries}")
        return cls(timeout, int(tries), _size(LIMIT))

    @property
    def longest_silence(self) -> float:
        """Seconds after which reading a file from a silent store has ended: all tries, and the waits between them."""
        return self.tries * (self.timeout + 2 * POLL) + sum(_wait(number) for number in range(1, self.tries))


def _wait(tried: int) -> float:
    return float(min(FIRST_WAIT * 2.0 ** (tried - 1), LONGEST_WAIT))


def _number(name: str, default: float, least: float, most: float) -> float:
    stated = os.environ.get(name, "").strip()
    try:
        value = float(stated) if stated else default
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise WorkbenchError(f"{name} = {stated!r}: allowed is a number from {least:g} to {most:g}")
    return value


def _size(name: str) -> int | None:
    stated = os.environ.get(name, "").strip()
    if not stated:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", stated)
    unit = None if found is None else _UNITS.get(found[2].upper())
    size = 0.0 if found is None or unit is None else float(found[1]) * unit
    if not 1 <= size < 2**63:
        raise WorkbenchError(f"{name} = {stated[:SHOWN]!r}: allowed is a size such as 500MB, 200GB or 1.5TiB")
    return int(size)


class DamagedTransferError(Exception):
    """Wrong content of a file. `found` identifies the content: equal content in every try means a changed file."""

    def __init__(self, found: str, detail: str) -> None:
        super().__init__(detail)
        self.found = found


class AbandonedError(Exception):
    """The caller of a read wants its result no more."""


def repeated(url: str, attempt: Callable[[], T], stop: threading.Event | None = None, *, writes: bool = False) -> T:
    """The result of `attempt`, which reads or writes `url`; it is tried again after errors that may pass.

    Args:
        attempt: raises a DamagedTransferError where the content is wrong.
        stop: ends the waits between tries.

    Raises:
        MachineError: all tries failed. The same command may succeed later.
        WorkbenchError: there is no such file or no access; or every try read the same wrong content.
        AbandonedError: `stop` was set.
    """
    options, started, damages = StoreOptions.of_environment(), time.monotonic(), set[str]()
    for number in range(1, options.tries + 1):
        try:
            return attempt()
        except (WorkbenchError, AbandonedError):
            raise
        except Exception as caught:  # each store's library has its own errors
            error = behind(caught)
            if _is_final(error):
                raise unreachable(url, error, writes=writes) from error
            damages.add(error.found if isinstance(error, DamagedTransferError) else "")
            if number == options.tries:
                if number > 1 and len(damages) == 1 and isinstance(error, DamagedTransferError):
                    raise WorkbenchError(f"{url}: {error} ({number} reads found the same)") from error
                raise MachineError(_given_up(url, error, number, time.monotonic() - started, writes)) from error
            delay = _wait(number) * random.uniform(0.5, 1)
            shown = (without_secrets(url), said(error), number, options.tries, delay)
            logger.warning("%s: %s (try %d of %d); the next try is in %.1f s", *shown)
        if (stop or threading.Event()).wait(delay):
            raise AbandonedError
    raise AssertionError("there is at least one try")


def download(url: str, target: Path, stop: threading.Event | None = None) -> str:
    """Write a remote file to `target`, in one try.

    Returns the SHA-256 checksum of what was written, if the library wrote it from its beginning to its end.

    Raises:
        TimeoutError: no byte came for too long.
        AbandonedError: `stop` was set.
        Exception: the errors of the store's library.
    """
    progress = _Progress(target)

    def transfer(files: Any, path: str) -> Any:
        return (files._get_file if isinstance(files, AsyncFileSystem) else files.get_file)(
            path, str(target), callback=progress
        )

    _watched(url, transfer, progress, stop)
    return progress.digest()


def read_range(url: str, start: int, end: int, patience: float) -> bytes:
    """The bytes from `start` to `end` of a remote file, in one try.

    Args:
        patience: seconds after which the try ends.

    Raises:
        TimeoutError: the bytes did not come in time.
        Exception: the errors of the store's library.
    """

    def ask(files: Any, path: str) -> Any:
        return (files._cat_file if isinstance(files, AsyncFileSystem) else files.cat_file)(path, start=start, end=end)

    running = _started(url, ask)
    try:
        return bytes(running.result(patience))
    finally:
        running.cancel()


def read_bytes(url: str, check: Callable[[bytes], None] = lambda data: None) -> bytes:
    """The content of a remote file, read with repeated tries.

    Args:
        check: raises a DamagedTransferError where the content is wrong.

    Raises:
        MachineError, WorkbenchError: see `repeated`.
    """

    def attempt() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "content")
            download(url, target)
            data = target.read_bytes()
        check(data)
        return data

    return repeated(url, attempt)


def facts_of(url: str) -> dict[str, Any]:
    """What the store says about a file: `size`, and often `ETag` or `LastModified`.

    Raises:
        MachineError, WorkbenchError: see `repeated`.
    """

    def ask(files: Any, path: str) -> Any:
        return (files._info if isinstance(files, AsyncFileSystem) else files.info)(path)

    return dict(repeated(url, lambda: _watched(url, ask, _Progress(None), None)))


class _Progress(fsspec.callbacks.Callback):
    """The bytes that have arrived in a file, and their checksum, computed as they arrive."""

    def __init__(self, target: Path | None) -> None:
        super().__init__()
        self.target = target
        self._hasher, self._hashed, self._more = hashlib.sha256(), 0, False

    def state(self) -> tuple[int, int]:
        """Another value whenever bytes have arrived. What has arrived is hashed meanwhile."""
        return int(self.value), self._hash() if self.target is not None else 0

    def digest(self) -> str:
        """The checksum of the whole file, if it was written from its beginning to its end."""
        while self._hash() and self._more:
            pass
        return self._hasher.hexdigest()

    def _hash(self) -> int:
        """Hash up to 64 MiB that have arrived; returns the bytes hashed so far."""
        assert self.target is not None
        self._more = False
        with contextlib.suppress(FileNotFoundError), open(self.target, "rb") as file:
            file.seek(self._hashed)
            for _ in range(64):
                chunk = file.read(CHUNK)
                self._hasher.update(chunk)
                self._hashed += len(chunk)
                self._more = len(chunk) == CHUNK
                if not self._more:
                    break
        return self._hashed


def _watched(url: str, start: Callable[[Any, str], Any], progress: _Progress, stop: threading.Event | None) -> Any:
    """The result of an operation of a file system, which is ended where it makes no progress."""
    patience = StoreOptions.of_environment().timeout
    running = _started(url, start)
    state, since = progress.state(), time.monotonic()
    while True:
        if wait([running], POLL).done:
            return running.result()
        if stop is not None and stop.is_set():
            running.cancel()
            raise AbandonedError
        now = progress.state()
        if now != state:
            state, since = now, time.monotonic()
        elif time.monotonic() - since >= patience:
            running.cancel()
            raise TimeoutError(f"no byte came for {patience:g} s")


def _started(url: str, start: Callable[[Any, str], Any]) -> Future[Any]:
    """The operation, running on fsspec's event loop or in a thread of its own."""

    async def in_loop() -> Any:
        files, path = opened(url)
        return await start(files, path)

    def in_thread() -> None:
        try:
            found, failure = start(*opened(url)), None
        except BaseException as error:
            found, failure = None, error
        with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
            result.set_result(found) if failure is None else result.set_exception(failure)

    files, _ = opened(url)
    if isinstance(files, AsyncFileSystem) and files.async_impl:
        return asyncio.run_coroutine_threadsafe(in_loop(), get_loop())
    result: Future[Any] = Future()
    threading.Thread(target=in_thread, name="store", daemon=True).start()
    return result


def opened(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path in it. Its own repeats are few and its own patience is short where its
    constructor has them, so that no error is hidden for long.

    Raises:
        WorkbenchError: a URL that is not opened (`check_url`), or one that a file keeps without its secrets.
    """
    check_url(url)
    if is_cut(url):
        raise WorkbenchError(f"{url}: its user, password or query values are hidden ({HIDDEN}). {HOW_TO_GIVE}")
    files, path = fsspec.core.url_to_fs(url, **_settings(url.partition("://")[0]))
    if isinstance(getattr(files, "retries", None), int):
        files.retries = 1
    return files, path


def _settings(protocol: str) -> dict[str, Any]:
    """Arguments for the constructor of a protocol's file system, added to those of fsspec's configuration."""
    kind = fsspec.get_filesystem_class(protocol)
    known, own = inspect.signature(kind.__init__).parameters, dict(fsspec.config.conf.get(protocol, {}))
    timeout = StoreOptions.of_environment().timeout
    if "config_kwargs" in known:  # botocore
        bounds = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"max_attempts": 0}}
        # one stream a file: its bytes arrive in order, and several files are read at once
        streams = {"max_concurrency": 1} if "max_concurrency" in known else {}
        return streams | {"config_kwargs": bounds | own.get("config_kwargs", {})}
    if protocol in ("http", "https"):
        import aiohttp

        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout)  # else five minutes a file
        return {"client_kwargs": {"timeout": limits} | own.get("client_kwargs", {})}
    return {}


_PASSING = {408, 425, 429}
_FINAL: tuple[type[Exception], ...] = (
    *(FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError),
    *(ImportError, NotImplementedError, TypeError, ValueError, AttributeError),
)
_FINAL_NAMES = ("NoCredentials", "PartialCredentials", "ProfileNotFound", "ParamValidation", "InvalidURL", "NoRegion")


def _is_final(error: BaseException) -> bool:
    """Whether another try would end the same way: no such file, no access, a wrong address or configuration."""
    if isinstance(error, DamagedTransferError | TimeoutError | ConnectionError):
        return False
    status = _status(error)
    if status is not None:
        return status < 500 and status not in _PASSING
    return isinstance(error, _FINAL) or type(error).__name__.startswith(_FINAL_NAMES)


def behind(error: Exception) -> Exception:
    """The error that fsspec found where it says that there is no file: of a web server that does not answer, or refuses
    the access, it says the same as of a missing file."""
    cause = error.__cause__
    if not (isinstance(error, FileNotFoundError) and isinstance(cause, Exception)):
        return error
    of_web = isinstance(cause, ConnectionError | TimeoutError) or type(cause).__module__.startswith("aiohttp")
    return cause if of_web and (not _is_final(cause) or (_status(cause) or 0) in _IN_WORDS) else error


def _status(error: BaseException) -> int | None:
    """The HTTP status that a library's error carries, or botocore's error under it."""
    stated = [getattr(error, name, None) for name in ("status", "status_code", "code")]
    under: BaseException | None = error
    while under is not None:
        if isinstance(response := getattr(under, "response", None), dict):
            stated.insert(0, response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
        under = under.__cause__
    return next((value for value in stated if isinstance(value, int) and 300 <= value < 600), None)


_OF_LIBRARIES = re.compile(
    r"\[Errno -?\d+\] |An error occurred (?=\(\w+\))|(?<=\)) when calling the \w+ operation(?: \([^)]*\))?"
)
_IN_WORDS = {401: "the credentials are not accepted", 403: "no access"}
NO_FILE = "there is no such file"


def said(error: BaseException) -> str:
    """An error of a store's library in one line, without the numbers and the operations of that library."""
    text = _OF_LIBRARIES.sub("", without_secrets(" ".join(str(error).split()))).rstrip(".")
    if isinstance(error, FileNotFoundError) and " " not in text:  # a path alone
        return NO_FILE
    known = "no access" if isinstance(error, PermissionError) else _IN_WORDS.get(_status(error) or 0, "")
    if known:
        return known if known in text.lower() or not text else f"{known} ({text[:SHOWN]})"
    return text[:SHOWN] or type(error).__name__


def unreachable(url: str, error: BaseException, *, writes: bool = False) -> WorkbenchError:
    """The error for a file that cannot be read or written, now or later."""
    verb = "written" if writes else "read"
    return WorkbenchError(f"{url} cannot be {verb}: {said(error)}. Check the address and the access rights")


def _given_up(url: str, error: BaseException, tries: int, seconds: float, writes: bool) -> str:
    verb = "written" if writes else "read"
    return (
        f"{url} cannot be {verb}: {said(error)}. It was tried {tries} times in {seconds:.0f} s ({TRIES}, {TIMEOUT}). "
        "Start the same command again when the store answers: finished work is kept"
    )

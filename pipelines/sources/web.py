"""Fetches files of the web with limits of time and bytes, from public addresses, and respects opt-outs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import urljoin

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Retries, Seconds

AGENT = "pretraining-workbench"
OPT_OUTS = frozenset({"noai", "noimageai", "noindex", "noimageindex"})
"""Directives of the header X-Robots-Tag that forbid training on images, or collecting them."""
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
MOVED = frozenset({301, 302, 303, 307, 308})
MOST_MOVES = 5
OTHER_TYPES = ("text/html", "application/json", "application/pdf", "video/", "audio/")
PARTIAL_SUFFIX = 1 << 16


@dataclass(frozen=True)
class Manners:
    """How files are fetched: `timeout` in seconds and `most_bytes` bytes for each; temporary failures are tried
    `retries` times again; addresses of the private network only if `private`."""

    timeout: Seconds = 20.0
    retries: Retries = 2
    most_bytes: Count = 32 << 20
    private: bool = False


class NotFetchedError(Exception):
    """Why a file was not fetched; `again` if another attempt may succeed, after a number of seconds at least."""

    def __init__(self, reason: str, *, again: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.again, self.wait = reason, again, wait


@lru_cache(maxsize=1)
def web(manners: Manners) -> Web:
    """The fetcher of this process: its connections stay open for other files of the same hosts."""
    return Web(manners)


class Web:
    """Fetches files; several threads may use it at once."""

    def __init__(self, manners: Manners) -> None:
        """
        Raises:
            WorkbenchError: urllib3 is not installed.
        """
        try:
            import urllib3
        except ModuleNotFoundError as error:
            raise WorkbenchError(
                f"fetching needs the package {error.name!r}: pip install 'pretraining-workbench[web]'"
            ) from error
        self.errors = urllib3.exceptions
        self.manners = manners
        # more pools than a list has hosts at a time, more connections each than there are threads
        self.pools = urllib3.PoolManager(num_pools=1000, maxsize=256)
        if not manners.private:
            self.pools.pool_classes_by_scheme = _public_pools()

    def get(self, url: str) -> bytes:
        """The file's bytes.

        Raises:
            NotFetchedError: it does not exist, is too large, too slow, of another type, or its site has opted out.
        """
        for attempt in range(self.manners.retries + 1):
            try:
                return self._get(url)
            except NotFetchedError as error:
                # no retry if the server asks to wait longer than the timeout of a file
                if not error.again or attempt == self.manners.retries or error.wait > self.manners.timeout:
                    raise
                time.sleep(max(error.wait, random.uniform(0.5, 1) * min(2**attempt / 2, self.manners.timeout)))
        raise AssertionError("unreachable")

    def _get(self, url: str) -> bytes:
        end = time.monotonic() + self.manners.timeout
        for _ in range(MOST_MOVES + 1):
            response = self._asked(url, end)
            try:
                if response.status in MOVED and response.headers.get("Location"):
                    url = urljoin(url, response.headers["Location"])
                    continue
                self._check(response)
                data = b"".join(self._parts(response, end))
                response.release_conn()
                return data
            finally:
                response.close()
        raise NotFetchedError("too many redirects")

    def _asked(self, url: str, end: float) -> Any:
        """The response after its header was read."""
        if not url.lower().startswith(("http://", "https://")):
            raise NotFetchedError("not a web address")
        try:
            return self.pools.request(
                "GET",
                url,
                headers={"User-Agent": AGENT, "Accept": "image/*", "Accept-Encoding": "identity"},
                timeout=max(end - time.monotonic(), 0.001),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        except (self.errors.HTTPError, ValueError, OSError) as error:
            raise self._explained(error) from error

    def _check(self, response: Any) -> None:
        """Raises NotFetchedError if the header shows that the body is not wanted."""
        status, headers = response.status, response.headers
        if status != 200:
            wait = seconds_of(headers.get("Retry-After", ""), headers.get("Date", ""))
            raise NotFetchedError(f"HTTP {status}", again=status in AGAIN, wait=wait)
        if opted_out(headers.getlist("X-Robots-Tag")) or headers.get("tdm-reservation", "").strip() == "1":
            raise NotFetchedError("opted out")
        content = headers.get("Content-Type", "").lower().partition(";")[0].strip()
        if content.startswith(OTHER_TYPES):
            raise NotFetchedError(f"content type {content[:40]}")
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise NotFetchedError("compressed unasked")
        length = headers.get("Content-Length", "")
        if length.isdigit() and int(length) > self.manners.most_bytes:
            raise NotFetchedError("too many bytes")

    def _parts(self, response: Any, end: float) -> Iterator[bytes]:
        """The body, in pieces as they arrive."""
        size, length = 0, response.headers.get("Content-Length", "")
        try:
            while part := response.read1(PARTIAL_SUFFIX, decode_content=False):
                size += len(part)
                if size > self.manners.most_bytes:
                    raise NotFetchedError("too many bytes")
                if time.monotonic() > end:
                    raise NotFetchedError("timed out", again=True)
                yield part
        except (self.errors.HTTPError, OSError) as error:
            raise self._explained(error) from error
        if length.isdigit() and size < int(length):
            raise NotFetchedError("connection dropped", again=True)

    def _explained(self, error: Exception) -> NotFetchedError:
        errors = self.errors
        if isinstance(error, errors.NameResolutionError):
            return NotFetchedError("no such host")
        if isinstance(error, errors.NewConnectionError):  # which urllib3 also calls a timeout
            return NotFetchedError("no connection", again=True)
        if isinstance(error, errors.TimeoutError | TimeoutError):
            return NotFetchedError("timed out", again=True)
        if isinstance(error, errors.SSLError):
            return NotFetchedError("no secure connection")
        if isinstance(error, errors.ProtocolError | OSError):
            return NotFetchedError("connection dropped", again=True)
        return NotFetchedError("not a web address")


def seconds_of(retry_after: str, date: str = "") -> float:
    """The seconds that a header Retry-After asks to wait: a number or a date (RFC 9110, section 10.2.3); 0 without one.

    Args:
        date: the header Date of the same response, the clock of the server; by default the local clock.
    """
    asked = retry_after.strip()
    if asked.isascii() and asked.isdigit():
        return float(asked)
    end = _time_of(asked)
    if end is None:
        return 0.0
    return max((end - (_time_of(date) or datetime.now(UTC))).total_seconds(), 0.0)


def _time_of(date: str) -> datetime | None:
    """A date of a header; without a zone it is in GMT, as all dates of HTTP are."""
    try:
        time = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def opted_out(tags: list[str]) -> bool:
    """Whether headers X-Robots-Tag forbid the use for everybody or for us (`AGENT: noai`)."""
    for tag in tags:
        agent, colon, directives = tag.lower().partition(":")
        if not colon or "," in agent:
            directives = tag.lower()
        elif agent.strip() not in (AGENT, "*"):
            continue  # meant for another agent
        if OPT_OUTS & {directive.strip() for directive in directives.split(",")}:
            return True
    return False


def _public_pools() -> dict[str, Any]:
    """Connection pools to public addresses only: a downloaded list may name private machines."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.connection import HTTPConnection, HTTPSConnection

    class Public:
        def _new_conn(self) -> Any:
            socket = super()._new_conn()  # type: ignore[misc]
            address = ip_address(socket.getpeername()[0])
            mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
            if not (mapped or address).is_global:
                socket.close()
                raise NotFetchedError("private address")
            return socket

    class PublicHTTP(Public, HTTPConnection):
        pass

    class PublicHTTPS(Public, HTTPSConnection):
        pass

    class Pool(HTTPConnectionPool):
        ConnectionCls = PublicHTTP

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = PublicHTTPS

    return {"http": Pool, "https": SecurePool}

"""A server on this machine that misbehaves as those of the web do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from workbench.sequences.sequence import Sample

Files = dict[str, bytes]


class Handler(BaseHTTPRequestHandler):
    """`/ok/NAME` is a file; every other first part of a path is a way to go wrong."""

    protocol_version = "HTTP/1.1"
    files: Files
    asked: Counter[str]

    def do_GET(self) -> None:
        self.asked[self.path] += 1
        way, _, name = self.path[1:].partition("/")
        getattr(self, f"_{way}", self._missing)(name)

    def _ok(self, name: str) -> None:
        self._send(self.files[name])

    def _missing(self, name: str) -> None:
        self._send(b"nothing here", 404)

    def _late(self, name: str) -> None:
        time.sleep(1.5)
        self._send(self.files[name])

    def _drip(self, name: str) -> None:
        """A byte now and then: no single wait is long."""
        self._head(200, len(self.files[name]))
        for byte in self.files[name]:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.1)

    def _dropped(self, name: str) -> None:
        self._head(200, len(self.files[name]))
        self.wfile.write(self.files[name][:50])
        self.close_connection = True

    def _mute(self, name: str) -> None:
        self.close_connection = True

    def _page(self, name: str) -> None:
        self._send(b"<html>gone</html>", kind="text/html; charset=utf-8")

    def _disguised(self, name: str) -> None:
        self._send(b"<!DOCTYPE html><html>gone</html>")

    def _busy(self, name: str) -> None:
        """429 the first time; the second time it is there."""
        if self.asked[self.path] == 1:
            self._send(b"", 429, **{"Retry-After": "0"})
        else:
            self._send(self.files[name])

    def _never(self, name: str) -> None:
        self._send(b"", 429, **{"Retry-After": "3600"})

    def _tomorrow(self, name: str) -> None:
        """As before, but with a date."""
        self._send(b"", 429, **{"Retry-After": formatdate(time.time() + 86_400, usegmt=True)})

    def _broken(self, name: str) -> None:
        self._send(b"", 500)

    def _moved(self, name: str) -> None:
        self._send(b"", 302, Location=f"/ok/{name}")

    def _loop(self, name: str) -> None:
        self._send(b"", 301, Location=self.path)

    def _away(self, name: str) -> None:
        self._send(b"", 302, Location="file:///etc/passwd")

    def _huge(self, name: str) -> None:
        """More than it may be, without saying so."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        except OSError:
            self.close_connection = True

    def _stated(self, name: str) -> None:
        self._head(200, 1 << 40)
        self.close_connection = True

    def _noai(self, name: str) -> None:
        self._send(self.files[name], **{"X-Robots-Tag": "noai, noimageai"})

    def _others(self, name: str) -> None:
        self._send(self.files[name], **{"X-Robots-Tag": "otherbot: noai"})

    def _us(self, name: str) -> None:
        self._send(self.files[name], **{"X-Robots-Tag": "pretraining-workbench: noimageai"})

    def _tdm(self, name: str) -> None:
        self._send(self.files[name], **{"tdm-reservation": "1"})

    def _zipped(self, name: str) -> None:
        self._send(self.files[name], **{"Content-Encoding": "gzip"})

    def _head(self, status: int, length: int, kind: str = "image/jpeg", **headers: str) -> None:
        self.send_response(status)
        for header, value in {"Content-Type": kind, "Content-Length": str(length), **headers}.items():
            self.send_header(header, value)
        self.end_headers()

    def _send(self, data: bytes, status: int = 200, kind: str = "image/jpeg", **headers: str) -> None:
        try:
            self._head(status, len(data), kind, **headers)
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serving(files: Files) -> Iterator[tuple[str, Counter[str]]]:
    """The server's address, and how often each path was asked for."""
    asked: Counter[str] = Counter()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"files": files, "asked": asked}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def sample(url: str) -> Sample:
    return {"key": "k", "captions": ["a dog"], "meta": {"url": url}}

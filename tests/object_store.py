"""A real S3 server of this machine (moto's), and a proxy before it that misbehaves as object stores do."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec

BUCKET = "bucket"
SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class ProxyHandler(BaseHTTPRequestHandler):
    """Passes requests on, and spoils those whose path contains the proxy's `target`."""

    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def log_message(self, *_: Any) -> None:
        pass

    def _pass_on(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else None
        way = self.proxy.way_of(self.command, self.path)
        if way == "busy":
            return self._answer(503, SLOW_DOWN)
        if way == "denied":
            return self._answer(403, DENIED)
        if way == "silent":
            self.proxy.ended.wait()
            self.close_connection = True
            return None
        server = http.client.HTTPConnection("127.0.0.1", self.proxy.port_behind, timeout=60)
        try:
            server.request(self.command, self.path, body, dict(self.headers.items()))
            answer = server.getresponse()
            data = bytearray(answer.read())
        finally:
            server.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        stated = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", stated or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self._send(data, way)
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._pass_on
        raise AttributeError(name)

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send(self, data: bytearray, way: str) -> None:
        half = len(data) // 2
        if way == "flip":
            data[half] ^= 1
        if way in ("cut", "stall"):
            self.wfile.write(data[:half])
            self.wfile.flush()
            if way == "stall":
                self.proxy.ended.wait()
            self.close_connection = True
        elif way.startswith("slow"):
            self.proxy.count(1)
            step = max(1, len(data) // 20)
            for start in range(0, len(data), step):
                self.wfile.write(data[start : start + step])
                time.sleep(float(way[4:]) / 20)
            self.proxy.count(-1)
        else:
            self.wfile.write(data)


class Proxy:
    """Spoils the first `times` GETs of paths with `target` in them in the given `way`: busy (503), denied (403), cut,
    stall (half of the body, then nothing), silent, flip (a bit), slowSECONDS. `asked` has all requests."""

    def __init__(self, port_behind: int) -> None:
        self.port_behind = port_behind
        self.asked: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self.ended = threading.Event()
        self.misbehave("", "", 0)

    def misbehave(self, way: str, target: str = ".tar", times: int = 10**9) -> None:
        with self._lock:
            self.way, self.target, self.left = way, target, times
            self.asked.clear()
            self.at_once = self.most_at_once = 0

    def count(self, more: int) -> None:
        """Count the slow answers that are sent at the same time."""
        with self._lock:
            self.at_once += more
            self.most_at_once = max(self.most_at_once, self.at_once)

    def behave(self) -> None:
        self.misbehave("", "", 0)
        self.ended.set()
        self.ended = threading.Event()

    def way_of(self, command: str, path: str) -> str:
        with self._lock:
            self.asked.append((command, path))
            spoilt = command == "GET" and self.left > 0 and bool(self.way) and self.target in path
            self.left -= spoilt
            return self.way if spoilt else ""

    def gets(self, part: str = "") -> list[str]:
        """The paths of the GETs that contain `part`."""
        return [path for command, path in self.asked if command == "GET" and part in path]


@contextmanager
def object_store(folder: Path) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """The proxy, and the variables of the environment that lead to it; there is a bucket named `BUCKET`."""
    forget_servers()
    port = free_port()
    with open(folder / "moto.log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    try:
        wait_for(port, server)
        proxy = Proxy(port)
        handler = type("Handler", (ProxyHandler,), {"proxy": proxy})
        front = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        front.daemon_threads = True
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield proxy, environment(front.server_port)
        proxy.ended.set()
        front.shutdown()
        front.server_close()
    finally:
        server.kill()
        server.wait()


def forget_servers() -> None:
    """fsspec keeps a file system with the address of the server that was asked first."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def environment(port: int) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def upload(folder: str | Path, name: str) -> str:
    """Put the files of a corpus into the bucket; returns their URL."""
    files = fsspec.filesystem("s3")
    if not files.exists(BUCKET):
        files.mkdir(BUCKET)
    for path in sorted(Path(folder).iterdir()):
        if path.is_file():
            files.pipe_file(f"{BUCKET}/{name}/{path.name}", path.read_bytes())
    return f"s3://{BUCKET}/{name}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError, http.client.HTTPException):  # another program may listen at the port for a moment
            asked = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            asked.request("GET", "/moto-api/")
            if asked.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError("the S3 server did not start; see moto.log")

"""Stand-ins of the Hugging Face hub on this machine: one that is written (`workbench push`), and one that is read."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec
import huggingface_hub
import pytest


class Hub:
    """What the hub was asked for: repositories that were made, and the files of commits. `status` is its answer, and
    `private` whether only some may see the repository."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.status, self.private = 200, True

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path.endswith("/repos/create"):
            self.made.append(json.loads(body))
            return {"url": "https://huggingface.co/somebody/model", "name": "somebody/model"}
        if "/preupload/" in path:
            return {
                "files": [
                    {**each, "uploadMode": "regular", "shouldIgnore": False} for each in json.loads(body)["files"]
                ]
            }
        if "/commit/" in path:
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return {"commitUrl": "https://huggingface.co/somebody/model/commit/1", "commitOid": "1" * 40}
        if path.startswith("/api/models/"):
            return {"id": "somebody/model", "private": self.private}
        return {}


@contextmanager
def served_hub() -> Iterator[Hub]:
    """A hub that `HfApi` reaches while this lasts."""
    asked = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = json.dumps(asked.answer(self.path, body)).encode()
            self.send_response(asked.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        do_GET = do_POST  # noqa: N815

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_address[1]}"
    original = huggingface_hub.HfApi
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub, "HfApi", lambda: original(endpoint=at, token="hf_none"))
        yield asked
    server.shutdown()
    server.server_close()


class ReadableHub:
    """A hub with one repository of models, `somebody/model`: its files, and what was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []

    def listed(self, below: str) -> list[dict[str, Any]]:
        """The files and folders of the repository as its API lists them."""
        found = [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in self.files.items()
        ]
        folders = {name[: found.start()] for name in self.files for found in re.finditer("/", name)}
        found += [{"type": "directory", "path": name, "size": 0, "oid": ""} for name in sorted(folders)]
        return [each for each in found if each["path"].startswith(f"{below}/" if below else "")]

    def answer(self, path: str) -> Any:
        """The JSON, or the bytes, at a path; None where nothing is."""
        self.asked.append(path)
        path = path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/somebody/model/tree/[^/]+/?(.*)", path):
            return self.listed(found[1])
        if re.fullmatch(r"/api/models/somebody/model(/revision/[^/]+)?", path):
            return {"id": "somebody/model", "modelId": "somebody/model", "sha": "1" * 40, "siblings": []}
        found = re.fullmatch(r"/somebody/model/resolve/[^/]+/(.+)", path)
        return self.files.get(found[1]) if found else None


@contextmanager
def readable_hub(files: dict[str, bytes]) -> Iterator[ReadableHub]:
    """A hub that `hf://` and `hub:` reach while this lasts."""
    hub = ReadableHub(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = hub.answer(self.path)
            data, status = b"{}" if found is None else found, 404 if found is None else 200
            if not isinstance(data, bytes):
                data = json.dumps(data).encode()
            part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if part and status == 200:
                status, size = 206, len(data)
                last = min(int(part[2] or size), size - 1)
                data = data[int(part[1]) : last + 1]
            self.send_response(status)
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound" if "/api/" in self.path else "EntryNotFound")
            if status == 206:
                self.send_header("Content-Range", f"bytes {part[1]}-{last}/{size}")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {"endpoint": f"http://127.0.0.1:{server.server_address[1]}", "token": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fsspec.config.conf, "hf", options)
        yield hub
    server.shutdown()
    server.server_close()

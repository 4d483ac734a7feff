"""A stand-in of the Hugging Face hub on this machine, for `workbench push`."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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

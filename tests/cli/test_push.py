"""`workbench push` against a stand-in of the hub on this machine."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from workbench.cli.push import push
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.options.command import call_from_python
from workbench.interop.checkpoint_files import CONFIG, WEIGHTS
from workbench.interop.model_card import CARD


class Hub:
    """What the hub was asked for: repositories that were made, and the files of commits. `status` is its answer."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.status = 200

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
        return {}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
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
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: original(endpoint=at, token="hf_none"))
    yield asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (CONFIG, WEIGHTS, CARD, "notes.txt"):
        (tmp_path / name).write_text(f"{name} of a model")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    return tmp_path


def test_the_files_of_an_export_arrive_and_no_others(
    hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_from_python(push, folder=folder, name="somebody/model", private=True)
    assert [(each["organization"], each["name"], each["visibility"]) for each in hub.made] == [
        ("somebody", "model", "private")
    ]
    assert {*hub.files} == {CONFIG, WEIGHTS, CARD, "1_Pooling/config.json"}
    assert hub.files[WEIGHTS] == f"{WEIGHTS} of a model".encode()
    assert "uploaded to" in capsys.readouterr().out


def test_who_may_not_write_and_what_is_no_export_learn_it(hub: Hub, folder: Path, tmp_path: Path) -> None:
    for status, error, message in ((403, WorkbenchError, "refuses somebody/model"), (500, MachineError, "try again")):
        hub.status = status
        with pytest.raises(error, match=message):
            call_from_python(push, folder=folder, name="somebody/model")
    for name in ("model", "a/b/c", "../x", "somebody/mo del"):
        with pytest.raises(WorkbenchError, match="OWNER/NAME"):
            call_from_python(push, folder=folder, name=name)
    (folder / CARD).unlink()
    with pytest.raises(WorkbenchError, match=r"has no README\.md; a folder of `workbench export` is uploaded"):
        call_from_python(push, folder=folder, name="somebody/model")
    assert hub.files == {}


def test_a_hub_that_cannot_be_reached_is_no_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = huggingface_hub.HfApi
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: original(endpoint="http://127.0.0.1:9", token="hf_none"))
    with pytest.raises(MachineError, match=r"the hub cannot be reached: .*; try again later"):
        call_from_python(push, folder=folder, name="somebody/model")

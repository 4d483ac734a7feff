"""`workbench push` against a stand-in of the hub on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest

from tests.hub import Hub, served_hub
from workbench.cli.push import push
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.options.command import call_from_python
from workbench.interop.checkpoint_files import CONFIG, WEIGHTS
from workbench.interop.model_card import CARD


@pytest.fixture
def hub() -> Iterator[Hub]:
    with served_hub() as asked:
        yield asked


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


def test_what_should_be_private_is_not_sent_to_a_public_place(hub: Hub, folder: Path) -> None:
    hub.private = False
    with pytest.raises(WorkbenchError, match="somebody/model is there and is public"):
        call_from_python(push, folder=folder, name="somebody/model", private=True)
    assert hub.files == {}


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

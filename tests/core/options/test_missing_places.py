"""Messages about places that are missing, here and on a store."""

from __future__ import annotations

import errno
import os
import re
import uuid
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

import workbench
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import Store, path_at
from workbench.core.files.transfers import said
from workbench.core.local_copies import place_of, stands_for, with_urls
from workbench.core.options.bounds import Location, Place
from workbench.core.options.command import call_from_python, command
from workbench.core.options.missing_places import named_places

RAW = re.compile(r"\[Errno|NoSuchKey|An error occurred|botocore|/cache/")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("one\n")
    (tmp_path / "folder").mkdir()


def reading(path: Annotated[Path, typer.Option("--words")], table: Location = "words.txt") -> str:
    return path.read_text() + Path(table).read_text()


def message_of(**values: Any) -> str:
    with pytest.raises(WorkbenchError) as refused:
        command(reading)(**values)
    text = str(refused.value)
    assert not RAW.search(text)
    return text


def test_error_of_the_system_names_the_option_and_the_nearest_name() -> None:
    assert command(reading)(path="words.txt") == "one\none\n"
    found = message_of(path="wrods.txt")
    assert found.startswith("--words: wrods.txt: there is no such file or folder")
    assert found.endswith("Did you mean words.txt?")
    assert message_of(path="words.txt", table="foldr/x").endswith("Did you mean folder/x?")
    assert message_of(path="words.txt", table="foldr/x").startswith("--table: foldr/x: ")


def test_the_command_of_another_process_is_no_place() -> None:
    message = "s3://bucket/run is in use: process 7 on node2, since 2026-05-01 (workbench pretrain bert)"
    with (
        pytest.raises(WorkbenchError) as refused,
        named_places({"recipe": Place}, {"recipe": "bert"}, {"recipe": "RECIPE"}),
    ):
        raise WorkbenchError(message)
    assert str(refused.value) == message


def test_folder_for_a_file_and_file_for_a_folder() -> None:
    assert message_of(path="folder").startswith("--words: folder: a folder is where a file is needed")
    assert "words.txt is a file, and no folder" in message_of(path="words.txt/x")


def test_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as a user whom nothing is forbidden."""

    def refused(path: Path) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_text", refused)
    assert message_of(path="words.txt").startswith("--words: words.txt: no permission")


def test_other_errors_stay_as_they_are() -> None:
    def other(path: Path) -> None:
        raise WorkbenchError(f"{path} has two columns too many")

    def unrelated(path: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, "gone", "/nowhere/else")

    with pytest.raises(WorkbenchError, match=r"^words.txt has two columns"):
        call_from_python(other, path="words.txt")
    with pytest.raises(FileNotFoundError):
        call_from_python(unrelated, path="words.txt")


def test_message_of_a_component_gets_its_key_and_the_nearest_name() -> None:
    Path("entities.safetensors").write_text("")
    with pytest.raises(
        WorkbenchError, match=r"kg.entity_table': path: there is no file entitys.safetensors .*"
    ) as found:
        build("embedding", {"embedding": "kg.entity_table", "path": "entitys.safetensors"})
    assert str(found.value).endswith("Did you mean entities.safetensors?")


def test_missing_run_of_a_command() -> None:
    with pytest.raises(WorkbenchError, match=r"^corpus: there is no corpus at .*foldr.*Did you mean folder\?$"):
        workbench.link("foldr", "new", graph="folder")


def test_missing_object_names_the_nearest() -> None:
    store = Store(f"memory://{uuid.uuid4().hex}")
    store.put_bytes(b"x", "graph/graph.json")
    store.put_bytes(b"x", "table.bin")
    for wrong, right in (("tabel.bin", "table.bin"), ("grahp", "graph")):
        with pytest.raises(WorkbenchError, match=rf"^there is no file or folder {store.at(wrong)};") as found:
            path_at(store.at(wrong))
        assert str(found.value).endswith(f"Did you mean {store.at(right)}?")
    with pytest.raises(WorkbenchError, match=r"address$"):
        path_at("memory://nothing/here")
    text = message_of(path=store.at("tabel.bin"))
    assert text.startswith("--words: there is no file or folder memory://")


def test_words_of_libraries_are_left_out() -> None:
    assert said(FileNotFoundError("bucket/x")) == "there is no such file"
    assert said(OSError(16, "Please reduce your request rate.")) == "Please reduce your request rate"
    assert said(PermissionError("An error occurred (403) when calling the HeadObject operation: Forbidden")) == (
        "no access ((403): Forbidden)"
    )


def test_copies_are_named_by_their_urls(tmp_path: Path) -> None:
    copy = stands_for(tmp_path / "ab12" / "graph", "s3://bucket/graph")
    assert place_of(copy / "graph.json") == "s3://bucket/graph/graph.json"
    assert place_of(tmp_path / "ab12" / "other") == str(tmp_path / "ab12" / "other")
    assert with_urls({"read": [f"{copy}: 4 triples", 3]}) == {"read": ["s3://bucket/graph: 4 triples", 3]}
    assert str(WorkbenchError(f"{copy} is damaged")) == "s3://bucket/graph is damaged"

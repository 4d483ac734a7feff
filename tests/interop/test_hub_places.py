"""`hub:ORG/NAME`: a repository of the Hugging Face hub, wherever a run or a checkpoint is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import workbench
from pipelines.demo.small_files import write_texts
from tests.hub import ReadableHub, readable_hub
from workbench.cli.app import main
from workbench.core.errors import WorkbenchError
from workbench.core.files.urls import url_of
from workbench.recipe.reading import load_recipe
from workbench.runs.stored_run import fetched_run

TEXTS = ["Oslo lies in Norway.", "a wide river"]
NAME = "hub:somebody/model"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, its tokenizer, and an exported BERT in `bert`."""
    folder = tmp_path_factory.mktemp("exported")
    write_texts(folder)
    text = workbench.prepare_text(folder / "notes.txt", folder / "text")
    workbench.prepare("tokenizer", corpora=text, output=folder / "tokenizer.json", vocab_size=200)
    workbench.create_model("bert-tiny", folder / "tokenizer.json").export(folder / "bert", "bert")
    return folder


@pytest.fixture
def hub(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadableHub]:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with readable_hub({file.name: file.read_bytes() for file in (exported / "bert").iterdir()}) as found:
        yield found


@pytest.mark.parametrize("place", [NAME, "hf://somebody/model", f"{NAME}@main"])
def test_a_repository_is_loaded_as_its_folder_is(place: str, hub: ReadableHub, exported: Path) -> None:
    model = workbench.load(place)
    assert np.array_equal(model.encode(TEXTS), workbench.load(exported / "bert").encode(TEXTS))


def test_other_forms_of_the_weights_are_not_downloaded(hub: ReadableHub) -> None:
    hub.files |= {"pytorch_model.bin": b"0", "onnx/model.onnx": b"0", "1_Pooling/config.json": b"{}"}
    folder = fetched_run(NAME)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {*hub.files} - {"pytorch_model.bin", "onnx/model.onnx"}


def test_weights_without_another_form_are_downloaded(hub: ReadableHub) -> None:
    hub.files = {"config.json": b"{}", "pytorch_model.bin": b"0"}
    assert {file.name for file in fetched_run(NAME).iterdir()} == {*hub.files}


def test_a_repository_is_downloaded_again_when_it_has_changed(hub: ReadableHub) -> None:
    hub.files |= {"README.md": b"one"}
    first = fetched_run(NAME)
    downloads = sum("/resolve/" in path for path in hub.asked)
    assert fetched_run(NAME) == first
    assert sum("/resolve/" in path for path in hub.asked) == downloads
    hub.files |= {"README.md": b"two"}  # of the same size
    assert (fetched_run(NAME) / "README.md").read_bytes() == b"two"


def test_a_run_in_a_repository_is_opened(hub: ReadableHub, exported: Path, tmp_path: Path) -> None:
    changes = {"tasks.text.corpora": [str(exported / "text")], "train.max_steps": 2}
    run = workbench.pretrain("tiny-text", tmp_path / "run", {**changes, "tokenizer": str(exported / "tokenizer.json")})
    hub.files = {
        path.relative_to(run.folder).as_posix(): path.read_bytes() for path in run.folder.rglob("*") if path.is_file()
    }
    assert np.array_equal(workbench.load(NAME).encode(TEXTS), workbench.load(run).encode(TEXTS))
    assert workbench.open_run(NAME).metrics == run.metrics


def test_pretraining_continues_from_a_repository(hub: ReadableHub, exported: Path, tmp_path: Path) -> None:
    changes = {"tasks.text.corpora": [str(exported / "text")], "train.max_steps": 2, "train.num_workers": 0}
    run = workbench.pretrain(NAME, tmp_path / "run", changes)
    assert run.recipe["model"]["init_from"][0]["weights"] == run.recipe["tokenizer"] == NAME
    other = workbench.create_model("bert-tiny", exported / "tokenizer.json", NAME)
    assert np.array_equal(other.encode(TEXTS), workbench.load(exported / "bert").encode(TEXTS))


def test_a_command_takes_it(hub: ReadableHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    command = ["workbench", "encode", NAME, str(texts), "--output", str(tmp_path / "vectors.safetensors")]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit, match="0"):
        main()
    assert (tmp_path / "vectors.safetensors").is_file()


@pytest.mark.parametrize("name", ["hub:", "hub:gpt2", "hub:/a/b", "hub:a/b c", "hub:a//b", "hub:a/b/"])
def test_what_names_no_repository_is_refused(name: str) -> None:
    with pytest.raises(WorkbenchError, match="names no repository of the Hugging Face hub; write hub:ORG/NAME"):
        url_of(name)


def test_the_names_of_repositories() -> None:
    assert url_of("hub:google-bert/bert-base_1.0@v1/sub/folder") == "hf://google-bert/bert-base_1.0@v1/sub/folder"
    assert url_of(Path(NAME)) == "hf://somebody/model"
    assert url_of("hubs/model") is None


def test_a_repository_that_is_not_there_is_refused(hub: ReadableHub) -> None:
    with pytest.raises(WorkbenchError, match="no run or checkpoint at hf://somebody/other"):
        workbench.load("hub:somebody/other")
    with pytest.raises(WorkbenchError, match="name it as hub:ORG/NAME"):
        load_recipe("google-bert/bert-base-uncased")

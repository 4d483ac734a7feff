"""What `--output` would destroy, or cannot make, is refused by its name before anything else is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recipes.conftest import write_corpus

Refused = Callable[..., str]
COMMANDS = ("generate nowhere in.txt", "encode nowhere in.txt", "report nowhere", "prepare vectors nowhere")


@pytest.fixture
def places(here: Path) -> Path:
    (here / "in.txt").write_text("the red house\n")
    os.mkfifo(here / "pipe")
    (here / "link").symlink_to("pipe")
    (here / "folder").mkdir()
    (here / "run").mkdir()
    for name in ("recipe.yaml", "data.json", "tokenizer.json"):
        (here / "run" / name).write_text("{}")
    return here


def kept(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_ino) for path in folder.rglob("*"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_may_replace_a_file_alone(places: Path, refused: Refused, command: str) -> None:
    before = kept(places)
    for output, reported in (
        ("pipe", "pipe is a pipe or device"),
        ("link", "link is a link"),
        ("folder", "folder is a folder"),
        ("", "has no file name"),
        ("in.txt/out", "in.txt/out: a file is where a folder is needed"),
        ("in.txt/new/out", "a file is where a folder is needed"),
    ):
        message = refused(*command.split(), "--output", output)
        assert message.startswith("error: --output: "), message
        assert reported in message
    assert kept(places) == before


@pytest.mark.parametrize(
    "command", ["generate nowhere in.txt", "encode nowhere in.txt", "report nowhere --opening in.txt"]
)
def test_an_input_is_no_output(places: Path, refused: Refused, command: str) -> None:
    (places / "same.txt").hardlink_to(places / "in.txt")
    for output in ("in.txt", "./folder/../in.txt", "same.txt"):
        assert "would be overwritten" in refused(*command.split(), "--output", output)
    assert (places / "in.txt").read_text() == "the red house\n"


@pytest.mark.parametrize("command", COMMANDS[:3])
def test_what_a_run_holds_is_its_own(places: Path, refused: Refused, command: str) -> None:
    for output in ("run/recipe.yaml", "run/tokenizer.json", "run/checkpoints/new.txt", "run/evaluations/a.json"):
        assert refused(*command.split(), "--output", output).startswith(f"error: --output: {output} belongs to the run")
    assert "nowhere" in refused(*command.split(), "--output", "run/report.html")


@pytest.mark.parametrize("option", ["--predictions", "--gqa-predictions"])
def test_files_next_to_an_evaluation_are_outputs_too(world: Path, places: Path, refused: Refused, option: str) -> None:
    corpus = world / "corpora" / "text"
    before = {path.name: path.read_bytes() for path in (*corpus.iterdir(), *(places / "run").glob("*.*"))}
    for place, reported in (("corpora/text/corpus.json", "the corpus"), ("run/tokenizer.json", "the run")):
        message = refused("evaluate", "vqa", "run", "corpora/text", option, place)
        assert message.startswith(f"error: {option}: {place} belongs to {reported}"), message
    assert {path.name: path.read_bytes() for path in (*corpus.iterdir(), *(places / "run").glob("*.*"))} == before


def test_two_outputs_are_two_files(places: Path, refused: Refused) -> None:
    for other in ("a.json", "folder/../a.json"):
        message = refused("evaluate", "vqa", "run", "c", "--predictions", "a.json", "--gqa-predictions", other)
        assert message.startswith(f"error: --gqa-predictions: {other} is also the output of --predictions"), message


def test_what_a_corpus_holds_is_its_own(world: Path, refused: Refused) -> None:
    corpus = world / "corpora" / "text"
    before = {path.name: path.read_bytes() for path in corpus.iterdir()}
    for name in before:
        message = refused("encode", "nowhere", "corpora/text", "--output", f"corpora/text/{name}")
        assert f"corpora/text/{name} belongs to the corpus" in message
    assert "nowhere" in refused("encode", "nowhere", "corpora/text", "--output", "corpora/text/vectors.safetensors")
    assert {path.name: path.read_bytes() for path in corpus.iterdir()} == before


def test_an_evaluation_is_not_begun_whose_result_has_no_place(places: Path, refused: Refused) -> None:
    (places / "evaluations").write_text("words")
    (places / "weights").mkdir()  # of others, whose results lie next to the run that asks
    for name in ("config.json", "model.safetensors"):
        (places / "weights" / name).write_text("{}")
    write_corpus(places / "texts", "text", [{"key": "a", "text": "The red house.", "meta": {}}])
    message = refused("evaluate", "classify", "weights", "texts")
    assert "evaluations/weights/classify-texts.json: a file is where a folder is needed" in message


def test_a_release_replaces_files_alone_and_no_run(places: Path, refused: Refused) -> None:
    os.mkfifo(places / "folder" / "model.safetensors")
    for output, reported in (
        ("run", "run belongs to the run"),
        ("run/best", "run/best belongs to the run"),
        ("in.txt", "a file is where a folder is needed"),
        ("pipe", "a file is where a folder is needed"),
        ("folder", "model.safetensors is a pipe or device"),
    ):
        message = refused("export", "nowhere", "--as", "bert", "--output", output)
        assert message.startswith("error: --output: "), message
        assert reported in message

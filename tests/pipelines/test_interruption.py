"""Preparing that is killed, interrupted or out of room: nothing half-written, and the same command does it again."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.test_commands import prepare
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files import drafts
from workbench.corpora.corpus import Corpus
from workbench.corpora.foreign import index_foreign
from workbench.text.similar_words import SimilarWords

TOWNS = ("oslo", "lima", "cairo", "quito")
COMMANDS: dict[str, list[str]] = {
    "text": ["lines.en", "lines.de", "-o", "pairs", "--shard-size", "20", "--workers", "1"],
    "phrases": ["text", "-o", "phrases", "--shard-size", "40", "--workers", "1"],
    "similar-words": ["text", "--tokenizer", "tokenizer.json", "-o", "near.safetensors", "--dim", "4"],
    "token-counts": ["text", "--tokenizer", "tokenizer.json", "-o", "counts.json"],
}


@pytest.fixture
def folder(tmp_path: Path, json_lines: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds parallel lines, a corpus and its tokenizer; the current folder."""
    pytest.importorskip("gensim")
    monkeypatch.chdir(tmp_path)
    for language in ("en", "de"):
        (tmp_path / f"lines.{language}").write_text("".join(f"{language} {i}\n" for i in range(50)), "utf-8")
    rows = [{"text": f"the old town of {TOWNS[i % 4]} has {TOWNS[i % 3]} on its map."} for i in range(100)]
    prepare("text", json_lines("towns.jsonl", rows), "-o", "text", "--workers", 1)
    prepare("tokenizer", "text", "-o", "tokenizer.json", "--vocab-size", 80)
    return tmp_path


def output(command: str) -> Path:
    place = Path(COMMANDS[command][COMMANDS[command].index("-o") + 1])
    return place if place.suffix else place / "corpus.json"


def content(file: Path) -> object:
    """What is in a file; a table's metadata have no order."""
    return [a.tolist() for a in SimilarWords(file).table] if file.suffix == ".safetensors" else file.read_bytes()


def killed_at_rename(number: int, command: str, *more: str) -> bool:
    """Whether a process that is killed (-9) at its n-th rename got as far."""
    child = os.fork()
    if not child:
        left, replace = [number], os.replace

        def replaced(*arguments: Any, **options: Any) -> None:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(*arguments, **options)

        os.replace = replaced
        try:
            prepare(command, *COMMANDS[command], *more)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_is_killed_leaves_no_whole_name_and_continues(folder: Path, command: str) -> None:
    assert killed_at_rename(1, command)
    assert not output(command).exists()
    prepare(command, *COMMANDS[command])
    whole = content(output(command))
    assert not [path.name for path in folder.rglob("*") if "@" in path.name]
    prepare(command, *COMMANDS[command])
    assert content(output(command)) == whole


@pytest.mark.parametrize(
    ("error", "reported"),
    [(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), MachineError), (KeyboardInterrupt(), SystemExit)],
    ids=["full", "Ctrl-C"],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_is_stopped_leaves_nothing_half_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, error: BaseException, reported: type[BaseException]
) -> None:
    def refused(path: Path) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(drafts, "sync", refused)
        with pytest.raises(reported):
            prepare(command, *COMMANDS[command])
    assert not output(command).exists()
    assert not [path.name for path in folder.rglob("*") if "@" in path.name]
    prepare(command, *COMMANDS[command])
    assert output(command).is_file()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(WorkbenchError) as raised:
        call()
    return str(raised.value)


def test_phrases_of_corpora_without_texts_or_phrases_are_refused(folder: Path, json_lines: Any) -> None:
    prepare("text", *COMMANDS["text"])
    prepare("text", json_lines("d.jsonl", [{"turns": ["where is it", "there"]}]), "-o", "dialogues", "--workers", 1)
    for corpus, field in (("pairs", "translations"), ("dialogues", "turns")):
        reported = refusal(lambda corpus=corpus: prepare("phrases", corpus, "-o", "none"))
        assert f"no record of {corpus} has a 'text' (they have {field}" in reported
    reported = refusal(lambda: prepare("phrases", "text", "-o", "none", "--min-count", 5000))
    assert "no two words occur together 5000 times" in reported
    assert not Path("none").exists()


def test_words_of_which_none_stands_in_for_another_are_refused(folder: Path, json_lines: Any) -> None:
    prepare("text", json_lines("one.jsonl", [{"text": "town"}]), "-o", "one", "--workers", 1)
    again = ("similar-words", "one", "--tokenizer", "tokenizer.json", "-o", "one.safetensors")
    assert "no word occurs 5 times" in refusal(lambda: prepare(*again))
    assert "no two of the 1 words" in refusal(lambda: prepare(*again, "--min-count", 1))
    assert not Path("one.safetensors").exists()


def test_what_a_killed_preparation_left_is_no_corpus(folder: Path) -> None:
    """It is not indexed as one either: only the command that began it makes it whole."""
    assert killed_at_rename(3, "text")
    assert list(Path("pairs").glob("*.tar"))
    unfinished = r"pairs is being prepared, or its preparation was stopped: run the same command again to continue it"
    with pytest.raises(WorkbenchError, match=unfinished):
        Corpus.open("pairs")
    with pytest.raises(WorkbenchError, match=unfinished):
        index_foreign([Path("pairs")], Path("pairs"))
    prepare("text", *COMMANDS["text"])
    assert Corpus.open("pairs").records == 50


def test_a_corpus_that_was_indexed_is_not_continued(folder: Path) -> None:
    prepare("text", *COMMANDS["text"])
    for path in (*Path("pairs").glob("*.npz"), *Path("pairs").glob("*.idx*"), Path("pairs/corpus.json")):
        path.unlink(missing_ok=True)
    index_foreign([Path("pairs")], Path("pairs"), kind="text", provenance={"command": "workbench index pairs"})
    with pytest.raises(WorkbenchError, match=r"holds a corpus that was not written .*workbench index pairs"):
        prepare("text", *COMMANDS["text"])


def test_what_a_killed_preparation_left_of_a_held_out_part_is_no_corpus_either(folder: Path) -> None:
    split = ("--split", "test=0.3")
    assert killed_at_rename(6, "text", *split)
    assert list(Path("pairs-test").glob("*.tar"))
    with pytest.raises(WorkbenchError, match="pairs-test is being prepared, or its preparation was stopped"):
        index_foreign([Path("pairs-test")], Path("pairs-test"))
    prepare("text", *COMMANDS["text"], *split)
    assert Corpus.open("pairs").records + Corpus.open("pairs-test").records == 50
    assert not list(Path().glob("pairs*/.prepare.json"))

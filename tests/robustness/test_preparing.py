"""Wrong raw inputs: one message, exit code 2, and no corpus that looks like one."""

from __future__ import annotations

import errno
import io
import json
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from workbench.corpora.manifest import FILE_NAME

Refused = Callable[..., str]


def assert_nothing_left(output: Path) -> None:
    """No corpus, no shard, no draft."""
    assert not output.exists(), sorted(output.rglob("*"))


def test_a_missing_file_names_what_lies_next_to_it(here: Path, refused: Refused) -> None:
    (here / "notes.txt").write_text("some words")
    message = refused("prepare", "text", "note.txt", "--output", "out")
    assert "note.txt" in message
    assert "notes.txt" in message
    assert_nothing_left(here / "out")


@pytest.mark.parametrize("content", ["", "\n \n\n"])
def test_an_empty_file(here: Path, refused: Refused, content: str) -> None:
    (here / "notes.txt").write_text(content)
    assert "notes.txt is empty" in refused("prepare", "text", "notes.txt", "--output", "out")
    assert_nothing_left(here / "out")


def test_an_empty_folder(here: Path, refused: Refused) -> None:
    (here / "notes").mkdir()
    assert "notes" in refused("prepare", "text", "notes", "--output", "out")
    assert_nothing_left(here / "out")


def test_a_corpus_that_would_be_empty_says_what_was_dropped(here: Path, refused: Refused) -> None:
    (here / "notes.txt").write_text("short\n\nshort too")
    message = refused("prepare", "text", "notes.txt", "--output", "out", "--min-length", "100")
    assert "would be empty: 2 x MinimumLength: too short" in message
    assert_nothing_left(here / "out")


def test_invalid_utf8_names_the_line(here: Path, refused: Refused) -> None:
    (here / "notes.txt").write_bytes(b"fine\n\nalso fine\n\nbroken \xff\xfe here\n")
    message = refused("prepare", "text", "notes.txt", "--output", "out")
    assert "notes.txt:5: not valid UTF-8" in message
    assert "iconv" in message
    assert_nothing_left(here / "out")


def test_invalid_utf8_can_be_skipped_and_is_counted(here: Path, workbench: Any) -> None:
    (here / "notes.txt").write_bytes(b"fine\n\nbroken \xff\xfe here\n")
    assert workbench("prepare", "text", "notes.txt", "--output", "out", "--on-error", "skip").code == 0
    manifest = json.loads((here / "out" / FILE_NAME).read_text())
    assert sum(shard["records"] for shard in manifest["shards"]) == 1
    assert sum(manifest["dropped"].values()) == 1


def test_a_broken_line_of_json(here: Path, refused: Refused) -> None:
    (here / "docs.jsonl").write_text('{"text": "fine"}\n{"text": "cut\n')
    message = refused("prepare", "text", "docs.jsonl", "--output", "out")
    assert "docs.jsonl:2" in message
    assert_nothing_left(here / "out")


def test_a_field_that_is_not_there(lines: Any, here: Path, refused: Refused) -> None:
    lines("docs.jsonl", {"body": "words"})
    message = refused("prepare", "text", "docs.jsonl", "--output", "out")
    assert "fields: body; choose with --option text_field=NAME" in message
    assert_nothing_left(here / "out")


@pytest.mark.parametrize("span", [[3, 99, "Q1", 1.0], [4, 4, "Q1", 1.0], [-1, 2, "Q1", 1.0]])
def test_an_entity_span_outside_the_text(lines: Any, here: Path, refused: Refused, span: list[Any]) -> None:
    lines("docs.jsonl", {"id": "oslo", "text": "Oslo lies", "spans": [span]})
    message = refused("prepare", "text", "docs.jsonl", "--output", "out")
    assert "docs.jsonl:1: the field 'spans' does not fit" in message
    assert str(span[0]) in message
    assert_nothing_left(here / "out")


def test_two_records_of_one_key(lines: Any, here: Path, refused: Refused) -> None:
    lines("docs.jsonl", {"id": "a", "text": "one"}, {"id": "a", "text": "two"})
    message = refused("prepare", "text", "docs.jsonl", "--output", "out")
    assert "'a'" in message
    assert "--numbered-keys" in message
    assert_nothing_left(here / "out")


def test_a_triple_with_two_columns(here: Path, refused: Refused) -> None:
    (here / "graph.tsv").write_text("a\tr\tb\n" * 99 + "c\td\n")
    message = refused("prepare", "triples", "graph.tsv", "--output", "out")
    assert "graph.tsv:100" in message
    assert_nothing_left(here / "out")


def _image() -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


def test_only_bad_images(lines: Any, here: Path, refused: Refused) -> None:
    (here / "images").mkdir()
    (here / "images" / "a.jpg").write_bytes(_image()[:300])
    lines("captions.jsonl", {"image": "a.jpg", "caption": "a noise"})
    assert "damaged image" in refused("prepare", "image-text", "captions.jsonl", "--output", "out")
    assert_nothing_left(here / "out")


def test_one_bad_image_is_dropped_and_counted(lines: Any, here: Path, workbench: Any) -> None:
    (here / "images").mkdir()
    (here / "images" / "a.jpg").write_bytes(_image()[:300])
    (here / "images" / "b.jpg").write_bytes(_image())
    lines("captions.jsonl", {"image": "a.jpg", "caption": "one"}, {"image": "b.jpg", "caption": "two"})
    ended = workbench("prepare", "image-text", "captions.jsonl", "--output", "out")
    assert ended.code == 0
    assert "damaged image" in ended.out + ended.err
    assert json.loads((here / "out" / FILE_NAME).read_text())["dropped"] == {"CheckImage: damaged image": 1}


def test_images_that_are_nowhere(lines: Any, here: Path, refused: Refused) -> None:
    lines("captions.jsonl", {"image": "a.jpg", "caption": "one"})
    assert "--images" in refused("prepare", "image-text", "captions.jsonl", "--output", "out")
    assert_nothing_left(here / "out")


def test_a_truncated_tar_of_images(lines: Any, here: Path, refused: Refused) -> None:
    data = _image()
    with tarfile.open(here / "images.tar", "w") as tar:
        for name in ("a.jpg", "b.jpg"):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    whole = (here / "images.tar").read_bytes()
    (here / "images.tar").write_bytes(whole[: 1024 + len(data) // 2 + len(data)])
    lines("captions.jsonl", {"image": "a.jpg", "caption": "one"}, {"image": "b.jpg", "caption": "two"})
    message = refused("prepare", "image-text", "captions.jsonl", "--images", "images.tar", "--output", "out")
    assert "images.tar" in message
    assert_nothing_left(here / "out")


def test_a_full_disk_while_a_shard_is_written(here: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "notes.txt").write_text("\n\n".join(f"note number {n}" for n in range(40)))
    from workbench.corpora.shards import writer

    written = 0
    real = writer._Hashed.write

    def write(self: Any, data: bytes) -> int:
        nonlocal written
        written += len(data)
        if written > 30_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(writer._Hashed, "write", write)
        message = refused("prepare", "text", "notes.txt", "--output", "out", "--shard-size", "10", code=1)
    assert "the disk is full" in message
    assert "run the same command again" in message
    assert not list((here / "out").glob(f"*{FILE_NAME}"))
    assert not [path for path in (here / "out").iterdir() if path.suffix == ".part"]


def test_after_a_full_disk_the_same_command_continues(
    here: Path, workbench: Any, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_a_full_disk_while_a_shard_is_written(here, refused, monkeypatch)
    assert workbench("prepare", "text", "notes.txt", "--output", "out", "--shard-size", "10").code == 0
    assert workbench("verify", "out").code == 0
    found = sorted(path.suffix for path in (here / "out").iterdir())
    assert found == [".bundle"] + [".index"] * 4 + [".json"] + [".tar"] * 4


SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_preparation_with_whole_shards(
    here: Path, workbench: Any, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """In the midst of a shard: the finished ones stay, the same command continues."""
    (here / "notes.txt").write_text("\n\n".join(f"note number {n}" for n in range(40)))
    from workbench.corpora.shards.writer import ShardWriter

    real, added = ShardWriter.add, 0

    def add(self: Any, key: str, sample: Any) -> None:
        nonlocal added
        added += 1
        if added == 15:
            signal.raise_signal(number)
        real(self, key, sample)

    before = [signal.getsignal(each) for each in SIGNALS]
    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "add", add)
        ended = workbench("prepare", "text", "notes.txt", "--output", "out", "--shard-size", "10")
    assert ended.code == 128 + number, ended
    assert "run the same command again" in ended.err
    assert f"error: stopped by {number.name}" in ended.err
    assert {name for name in files(here / "out") if name.endswith(("tar", "index", "part"))} == {
        "part-000000.tar",
        "part-000000.index",
    }
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert workbench("prepare", "text", "notes.txt", "--output", "out", "--shard-size", "10").code == 0
    assert workbench("verify", "out").code == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_tokenizer_is_written_leaves_nothing(
    world: Path, workbench: Any, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    before = files(world)
    monkeypatch.setattr("workbench.core.files.drafts.sync", lambda _: signal.raise_signal(number))
    ended = workbench("prepare", "tokenizer", "corpora/text", "--output", "tokenizer.json", "--vocab-size", "120")
    assert ended.code == 128 + number, ended
    assert files(world) == before


def test_an_output_that_is_a_file(here: Path, refused: Refused) -> None:
    (here / "notes.txt").write_text("words")
    (here / "out").write_text("precious")
    assert "out" in refused("prepare", "text", "notes.txt", "--output", "out")
    assert (here / "out").read_text() == "precious"


def test_a_folder_with_somebody_elses_tars(here: Path, refused: Refused) -> None:
    (here / "notes.txt").write_text("words")
    (here / "out").mkdir()
    (here / "out" / "mine.tar").write_bytes(b"precious")
    assert "choose another --output" in refused("prepare", "text", "notes.txt", "--output", "out")
    assert (here / "out" / "mine.tar").read_bytes() == b"precious"


def test_a_tokenizer_of_a_folder_that_is_no_corpus(here: Path, refused: Refused) -> None:
    (here / "notes").mkdir()
    message = refused("prepare", "tokenizer", "notes", "--output", "tokenizer.json")
    assert "notes" in message
    assert "corpus.json" in message
    assert not (here / "tokenizer.json").exists()


def test_a_place_with_spaces(here: Path, workbench: Any) -> None:
    (here / "my notes").mkdir()
    (here / "my notes" / "first note.txt").write_text("words of a note")
    output = here / "my corpora" / "all notes"
    assert workbench("prepare", "text", "my notes/first note.txt", "--output", output).code == 0
    assert workbench("verify", output).code == 0

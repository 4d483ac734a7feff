"""Damaged corpora: `verify` lists what is wrong, the other commands stop with one message."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Refused = Callable[..., str]
SHARD = "corpora/text/part-000001.tar"


def truncate(path: Path, share: float = 0.5) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def test_verify_says_that_all_is_right(world: Path, workbench: Any) -> None:
    ended = workbench("verify", "corpora/text")
    assert ended.code == 0
    assert "all right: 40 records in 4 shards" in ended.out


def test_verify_names_the_truncated_shard_and_ends_with_1(world: Path, workbench: Any) -> None:
    truncate(world / SHARD)
    ended = workbench("verify", "corpora/text")
    assert ended.code == 1
    assert "part-000001.tar" in ended.out
    assert "in 1 of 4 shards" in ended.out
    assert "Traceback" not in ended.out + ended.err


def test_training_on_a_truncated_shard_names_shard_and_key(world: Path, refused: Refused) -> None:
    truncate(world / SHARD, 0.2)
    message = refused("pretrain", "recipe.yaml", "--run", "run")
    assert "part-000001.tar" in message


def test_training_may_skip_damaged_records_and_counts_them(world: Path, workbench: Any) -> None:
    path = world / SHARD
    data = bytearray(path.read_bytes())
    place = data.index(b'{"text"')
    data[place : place + 6] = b"######"
    path.write_bytes(data)
    skip = ("train.on_error=skip", "train.verify=false")
    ended = workbench("pretrain", "recipe.yaml", *skip, "train.max_steps=5", "--run", "run")
    assert ended.code == 0, ended.err
    records = [json.loads(line) for line in (world / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum(n for r in records for name, n in r.items() if name.startswith("dropped/")) == 1
    none = workbench("pretrain", "recipe.yaml", *skip, "train.skip_limit=0", "train.max_steps=5", "--run", "other")
    assert none.code == 2
    assert "more than 0 samples could not be read" in none.err


def test_a_missing_shard(world: Path, refused: Refused) -> None:
    (world / SHARD).unlink()
    assert "part-000001.tar" in refused("pretrain", "recipe.yaml", "--run", "run")


def test_a_corpus_that_is_not_there_names_its_neighbours(world: Path, refused: Refused) -> None:
    for command in (["show", "corpora/txt"], ["verify", "corpora/txt"]):
        assert "corpora/txt" in refused(*command)


def test_a_damaged_manifest(world: Path, refused: Refused) -> None:
    truncate(world / "corpora/text/corpus.json")
    for command in (["show", "corpora/text"], ["verify", "corpora/text"], ["pretrain", "recipe.yaml", "--run", "run"]):
        message = refused(*command)
        assert "corpus.json is not valid JSON" in message
        assert "delete the folder" in message


@pytest.mark.parametrize("damage", [truncate, lambda path: path.write_text(path.read_text().replace("text", "test"))])
def test_the_advice_on_a_damaged_manifest_is_true(
    world: Path, refused: Refused, workbench: Any, damage: Callable[[Path], Any]
) -> None:
    """Preparing again does not fix it, deleting the folder before does."""
    command = ("prepare", "text", "notes.txt", "--output", "corpora/text", "--shard-size", "10")
    damage(world / "corpora/text/corpus.json")
    assert "delete the folder (and the folders of its held-out splits) and prepare the corpus again" in refused(
        *command
    )
    shutil.rmtree(world / "corpora/text")
    assert workbench(*command).code == 0
    assert workbench("verify", "corpora/text").code == 0


def test_the_advice_on_a_damaged_manifest_of_a_foreign_webdataset_is_true(
    here: Path, refused: Refused, workbench: Any
) -> None:
    foreign_tar(here / "set" / "a.tar", ["1.txt", "2.txt"])
    assert workbench("index", "set").code == 0
    truncate(here / "set" / "corpus.json", 0.1)
    assert "delete only this file and index it again" in refused("show", "set")
    (here / "set" / "corpus.json").unlink()
    assert workbench("index", "set").code == 0
    (here / "set" / "a.index").unlink()
    assert "index it again with the same command" in refused("show", "set")
    assert workbench("index", "set").code == 0
    assert workbench("verify", "set").code == 0


def test_a_damaged_index(world: Path, refused: Refused, workbench: Any) -> None:
    truncate(world / "corpora/text/part-000001.index")
    assert "part-000001" in refused("pretrain", "recipe.yaml", "--run", "run")
    assert workbench("verify", "corpora/text").code == 1


def foreign_tar(path: Path, names: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 3
            tar.addfile(entry, io.BytesIO(b"abc"))


def test_indexing_a_truncated_tar(here: Path, refused: Refused) -> None:
    foreign_tar(here / "set" / "a.tar", ["0.txt", "1.txt", "2.txt"])
    truncate(here / "set" / "a.tar", 0.11)
    assert "a.tar" in refused("index", "set")
    assert [path.name for path in (here / "set").iterdir()] == ["a.tar"]


def test_indexing_keys_that_come_twice(here: Path, refused: Refused) -> None:
    foreign_tar(here / "set" / "a.tar", ["0.txt", "1.txt", "0.txt"])
    message = refused("index", "set")
    assert "a.tar" in message
    assert "'0'" in message
    assert [path.name for path in (here / "set").iterdir()] == ["a.tar"]


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/outside.txt"])
def test_members_that_would_leave_the_folder_stay_inside(here: Path, workbench: Any, name: str) -> None:
    foreign_tar(here / "set" / "a.tar", [name])
    assert workbench("index", "set").code in (0, 2)
    assert not (here / "outside.txt").exists()
    assert {path.name for path in here.iterdir()} == {"set"}


def test_indexing_an_empty_folder(here: Path, refused: Refused) -> None:
    (here / "set").mkdir()
    assert "set" in refused("index", "set")
    assert not list((here / "set").iterdir())


def test_a_corpus_from_another_folder_and_with_spaces(world: Path, workbench: Any, monkeypatch: Any) -> None:
    (world / "corpora").rename(world / "all my corpora")
    (world / "elsewhere").mkdir()
    monkeypatch.chdir(world / "elsewhere")
    ended = workbench(
        "pretrain",
        world / "recipe.yaml",
        f"vars.corpus={world}/all my corpora/text",
        f"tokenizer={world}/all my corpora/tokenizer.json",
        "--run",
        "a run",
    )
    assert ended.code == 0, ended.err
    assert (world / "elsewhere" / "a run" / "checkpoints" / "step-4" / "model.safetensors").is_file()

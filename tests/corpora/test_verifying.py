"""`verify` finds every kind of damage and names shard and key; `show` shows what is there."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from workbench.cli import corpora as commands
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.core.options.command import command as as_command
from workbench.corpora import verify
from workbench.corpora.corpus import Corpus
from workbench.corpora.preview import describe, marked, preview, previews
from workbench.corpora.schema import members
from workbench.corpora.shards import record


def problems(corpus: Corpus, graph: Any = None) -> list[str]:
    return [f"{p.shard} {p.key} {p.reason}" for p in verify.verify(Corpus.open(corpus.place), graph)]


def overwrite(corpus: Corpus, shard: int, number: int, member: str, data: bytes) -> None:
    path = Path(corpus.place, corpus.shards[shard].name)
    offset = next(o for n, o, _ in corpus.index(shard).members(number) if n == member)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.fixture
def lax(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that checks nothing, to make corpora that are wrong inside."""
    monkeypatch.setattr(record, "check_sample", lambda *_: None)
    monkeypatch.setattr(members, "image_kind", lambda _: "jpg")


def test_good_corpora_have_no_problems(write: Any, texts: Any, images: Any) -> None:
    assert problems(write(texts(20)), {f"Q{i}" for i in range(10)}) == []
    assert problems(write(images(9), kind="image-text", name="images"), {"Q1"}) == []


def test_damage_on_disk(write: Any, texts: Any) -> None:
    corpus = write(texts(20), shard_size=5)
    overwrite(corpus, 0, 2, "json", b"!")
    Path(corpus.place, corpus.shards[1].name).unlink()
    path = Path(corpus.place, corpus.shards[2].name)
    path.write_bytes(path.read_bytes()[:-20000])
    found = problems(corpus)
    assert any("part-000000.tar  the checksum differs" in p for p in found)
    assert any(p.startswith("part-000000.tar r2 member json is not JSON") for p in found)
    assert any("part-000005.tar" in p and "is missing" in p for p in found)
    assert any("part-000010.tar" in p and "truncated" in p for p in found)
    assert len(found) == 4


def test_a_renamed_member_differs_from_the_index(write: Any, texts: Any) -> None:
    corpus = write(texts(5))
    path = Path(corpus.place, corpus.shards[0].name)
    data = bytearray(path.read_bytes())
    data[0:2] = b"z0"  # the first header's name: r0.json
    path.write_bytes(data)
    assert any("damaged" in p for p in problems(corpus))  # tar headers have checksums


def test_wrong_contents(write: Any, encoded: Callable[..., bytes], lax: None) -> None:
    regions = {
        "features": np.zeros((2, 3), np.float32),
        "boxes": np.array([[0, 0, 1, 1], [0.5, 0, 0.2, 1]], np.float32),
    }
    wrong = [
        {"image": encoded()[:-40] + b"x"},
        {"image": b"<!DOCTYPE html><p>404"},
        {"image": encoded(), "regions": regions},
        {"image": encoded(), "regions": {"features": np.zeros((2, 3)), "boxes": np.zeros((1, 4))}},
        {"image": encoded(), "regions": {"features": np.full((1, 3), np.nan), "boxes": np.array([[0, 0, 1, 7.0]])}},
        {"image": encoded(), "captions": ["ab"], "caption_spans": [[[0, 5, "Q1", 1.0]]]},
    ]
    found = problems(write(wrong, kind="image-text"))
    for key, reason in [
        ("r0", "cannot be decoded"),
        ("r1", "it is a web page"),
        ("r2", "boxes are not"),
        ("r3", r"boxes (1, 4); allowed"),
        ("r4", "not finite"),
        ("r4", "boxes are not"),
        ("r5", "outside its text of 2 characters"),
    ]:
        assert any(f" {key} " in p and reason in p for p in found), (key, reason, found)
    assert len(found) == 7


def test_spans_and_entities(write: Any, lax: None) -> None:
    samples = [
        {"text": "in Paris", "spans": [[3, 8, "Q90", 1.0]]},
        {"text": "in Paris", "spans": [[3, 8, "Q404", 1.0]]},
        {"text": "in Paris", "spans": [[3, 80, "Q90", 1.0]]},
    ]
    found = problems(write(samples), {"Q90"})
    assert [p.split()[1] for p in found] == ["r1", "r2"]
    assert "not in the graph: Q404" in found[0]
    assert "lies outside" in found[1]


def test_answers_and_tags_that_are_not_what_they_say(write: Any, lax: None) -> None:
    samples = [
        {"text": "in Oslo", "answers": ["Oslo"], "answer_spans": [[3, 7]]},
        {"text": "in Oslo", "answers": ["Rome"], "answer_spans": [[3, 7]]},
        {"text": "in Oslo", "tags": [[2, 3, "O"]]},
    ]
    found = problems(write(samples))
    assert [p.split()[1] for p in found] == ["r1", "r2"]
    assert "reads 'Oslo', but answers has 'Rome'" in found[0]
    assert "is white space" in found[1]


def test_too_many_pixels(encoded: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PIXEL_LIMIT", 40)
    assert "8 x 6 = 48 pixels; the limit is 40" in str(verify.check_image(encoded()))


def test_shards_that_share_keys(write: Any, texts: Any) -> None:
    corpus = write(texts(5), name="one")
    twin = dataclasses.replace(corpus.shards[0], name="twin.tar")
    Path(corpus.place, "twin.tar").write_bytes(Path(corpus.place, corpus.shards[0].name).read_bytes())
    manifest = dataclasses.replace(corpus.manifest, shards=[*corpus.shards, twin])
    manifest.write(Path(corpus.place))
    found = problems(corpus)
    assert len(found) == 5
    assert all("the shard part-000000.tar has the same key" in p for p in found)


def test_an_index_of_another_tar(write: Any, texts: Any) -> None:
    corpus, other = write(texts(5), name="one"), write(texts(5, 1), name="two")
    info = corpus.shards[0]
    path = Path(corpus.place, info.name)
    path.write_bytes(Path(other.place, other.shards[0].name).read_bytes())
    changed = dataclasses.replace(info, bytes=path.stat().st_size, sha256=sha256_of(path))
    dataclasses.replace(corpus.manifest, shards=[changed]).write(Path(corpus.place))
    assert any("not those of the index" in p for p in problems(corpus))


def rendered(renderable: Any) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


def test_show_counts_the_characters_of_every_field_of_texts(write: Any) -> None:
    pair = {"translations": {"en": "a dog", "de": "ein Hund"}, "meta": {}}
    shown = rendered(describe(write([pair, pair], name="pairs")))
    assert re.search(r"translations.en +│? *10 characters", shown)
    assert re.search(r"translations.de +│? *16 characters", shown)
    assert not re.search(r"\b0 characters", shown)
    shown = rendered(describe(write([{"text": "abc", "second": "defgh", "meta": {}}], name="two")))
    assert re.search(r"text +│? *3 characters", shown)
    assert re.search(r"second +│? *5 characters", shown)


def test_show_counts_and_previews(write: Any, texts: Any, images: Any) -> None:
    corpus = write(texts(20))
    text = rendered(describe(corpus))
    assert "20" in text
    assert "spans" in text
    assert "characters" in text
    shown = previews(corpus, 3)
    assert len(shown) == 3
    assert [rendered(s) for s in shown] == [rendered(s) for s in previews(corpus, 3)]
    assert marked("in Paris", [[3, 8, "Q90", 1.0]]).plain == "in Paris [Q90]"
    photographs = write(images(4), kind="image-text", name="images")
    text = rendered(preview(photographs.read(0, 3)))
    assert "PNG 8 x 6" in text
    assert "features [3, 5] float16" in text
    assert "caption [Q1] 2 of image 3" in text


def command(function: Callable[..., None]) -> typer.Typer:
    app = typer.Typer()
    app.command()(as_command(function))
    return app


def test_the_commands(write: Any, texts: Any, tmp_path: Path, make_tar: Any) -> None:
    run = CliRunner().invoke
    corpus = write(texts(9))
    result = run(command(commands.verify), [corpus.place])
    assert result.exit_code == 0
    assert "all right: 9 records in 2 shards" in result.output
    ids = tmp_path / "ids.txt"
    ids.write_text("Q1\nQ2\n")
    result = run(command(commands.verify), [corpus.place, "--graph", str(ids)])
    assert result.exit_code == 1
    assert "not in the graph" in result.output
    assert "text" in run(command(commands.show), [corpus.place]).output
    tar = make_tar([("a.txt", b"x")])
    result = run(command(commands.index), [str(tar.parent)])
    assert result.exit_code == 0
    assert "1 text records in 1 shards" in " ".join(result.output.split())
    for function in (commands.index, commands.verify, commands.show):
        assert "Examples" in run(command(function), ["--help"]).output


def test_the_graph_may_be_a_triples_corpus(write: Any, texts: Any, tmp_path: Path) -> None:
    triple = {"relation": "P1", "relation_text": "is", "tail": "Q2", "tail_text": "two"}
    graph = write([{"id": "Q1", "label": "one", "triples": [triple]}], kind="triples", name="graph")
    assert commands.graph_entities(Path(graph.place)) == {"Q1", "Q2"}
    listed = tmp_path / "ids.txt"
    listed.write_bytes("Q1\r\n\nQ\u20282\n".encode())
    assert commands.graph_entities(listed) == {"Q1", "Q\u20282"}
    with pytest.raises(WorkbenchError, match="kind text; --graph needs one of kind triples"):
        commands.graph_entities(Path(write(texts(2)).place))
    with pytest.raises(WorkbenchError, match="neither"):
        commands.graph_entities(tmp_path / "nowhere")

"""`prepare word-pairs`: a corpus of related words, and vectors of them all."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kg.graph.store import GraphStore
from kg.lexicons.word_vectors import WordVectors
from tests.preparing import app
from workbench.cli.app import main
from workbench.corpora.corpus import Corpus

ENTITIES = {
    "d": {"label": "dog", "aliases": ["domestic dog"]},
    "c": {"label": "canine"},
    "b": {"label": "boat", "aliases": ["zzyx"]},
}


def test_pairs_and_their_vectors(tmp_path: Path, json_lines) -> None:
    pytest.importorskip("gensim")
    GraphStore.build([("d", "hypernym", "c")], tmp_path / "graph", entity_texts=ENTITIES)
    texts = json_lines("texts.jsonl", [{"text": "the domestic dog is a canine on a boat . " * 3} for _ in range(10)])
    runner = CliRunner()
    assert runner.invoke(app, ["text", str(texts), "-o", str(tmp_path / "texts"), "--workers", "1"]).exit_code == 0
    command = ["word-pairs", str(tmp_path / "graph"), "--texts", str(tmp_path / "texts"), "--dim", "8"]
    done = runner.invoke(app, [*command, "-o", str(tmp_path / "pairs"), "--split", "test=0.4", "--workers", "1"])
    assert done.exit_code == 0, done.output
    found = []
    for part in ("pairs", "pairs-test"):
        corpus = Corpus.open(tmp_path / part)
        records = [corpus.read(s, r) for s, info in enumerate(corpus.shards) for r in range(info.records)]
        found += [(s["text"], s["second"], s["labels"]["relation"]) for s in records]
    assert sorted(found) == [
        ("boat", "zzyx", "synonym"),
        ("dog", "canine", "hypernym"),
        ("dog", "domestic dog", "synonym"),
        ("domestic dog", "canine", "hypernym"),
    ]
    vectors = WordVectors(tmp_path / "pairs" / "words.safetensors")
    unit = vectors.of(["dog", "Domestic Dog", "canine", "boat", "zzyx"])  # no text has the last one
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-5)
    again = runner.invoke(app, [*command, "-o", str(tmp_path / "again"), "--workers", "1"])
    assert again.exit_code == 0
    other = WordVectors(tmp_path / "again" / "words.safetensors")
    np.testing.assert_array_equal(other.of(["dog", "zzyx"]), vectors.of(["dog", "zzyx"]))
    written = tmp_path / "again" / "words.safetensors"
    before = written.stat().st_mtime_ns
    assert runner.invoke(app, [*command, "-o", str(tmp_path / "again"), "--workers", "1"]).exit_code == 0
    changed = runner.invoke(app, [*command, "-o", str(tmp_path / "again"), "--workers", "1", "--epochs", "1"])
    assert "was trained with other options or texts (epochs)" in str(changed.exception)
    assert written.stat().st_mtime_ns == before


def test_a_graph_of_other_relations_is_refused_with_which_one_is_wanted(tmp_path: Path) -> None:
    GraphStore.build([("d", "country", "c")], tmp_path / "graph", entity_texts=ENTITIES)
    command = ["word-pairs", str(tmp_path / "graph"), "--texts", str(tmp_path / "texts"), "-o", str(tmp_path / "pairs")]
    reported = str(CliRunner().invoke(app, command).exception)
    assert re.search(
        r"unknown relation 'hypernym' in .*Valid: country\. Give a graph of senses, such as WordNet's", reported
    )


def test_one_that_is_stopped_at_its_start_is_stopped(
    tmp_path: Path, json_lines: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> Iterator[object]:
        signal.raise_signal(signal.SIGINT)
        yield

    pytest.importorskip("gensim")
    GraphStore.build([("d", "hypernym", "c")], tmp_path / "graph", entity_texts=ENTITIES)
    texts = json_lines("texts.jsonl", [{"text": "a dog"}])
    assert CliRunner().invoke(app, ["text", str(texts), "-o", str(tmp_path / "texts"), "--workers", "1"]).exit_code == 0
    monkeypatch.setattr("kg.lexicons.word_pairs.word_pairs", stopped)
    monkeypatch.chdir(tmp_path)
    command = ["word-pairs", "graph", "--texts", "texts", "-o", "pairs", "--workers", "1"]
    monkeypatch.setattr("sys.argv", ["workbench", "prepare", *command])
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    said = capfd.readouterr().err
    assert "raised in" not in said
    assert "are kept" not in said
    assert "stopped before a shard of pairs with a record was finished: nothing is kept" in said
    assert said.endswith("error: stopped\n")
    assert not (tmp_path / "pairs").exists()

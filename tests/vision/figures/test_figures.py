"""`workbench show FIGURE RUN CORPUS`: what is drawn is what the network and the index give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vision.evaluation.retrieval.retrieval_corpus import dual_scores
from vision.evaluation.vqa.word_attention import attention_to_regions
from vision.figures._pair import read_pair
from vision.figures.alignment import transport
from vision.figures.attention import places_of
from vision.figures.neighbours import embedded_items
from vision.objectives.itc import Itc
from vision.objectives.itm import Itm
from vision.objectives.wra import Wra
from workbench.cli.app import app
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import open_run


def show(*words: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        app.run(["show", *map(str, words)], "workbench")
    assert ended.value.code == 0


def test_attention_is_drawn_of_the_words_that_are_named(matching: Path, squares: Path, tmp_path: Path) -> None:
    corpus, file = squares / "test", tmp_path / "a.png"
    show("attention", matching, corpus, "--record", 3, "--word", "Square", "--word", "white", "-o", file)
    assert Image.open(file).width > 400
    pair = read_pair(open_run(matching, Itm, ""), Corpus.open(corpus), 3)
    assert pair.text == "a white square on the left."
    assert [name for name, _ in pair.words] == ["a", "white", "square", "on", "the", "left", "."]
    assert places_of(["square", "white"], pair).tolist() == [1, 2]
    assert len(pair.boxes) == 4
    whole = attention_to_regions(open_run(matching, Itm, "").network, pair.batch, 0)
    np.testing.assert_allclose(pair.of_words(whole)[2], whole[pair.words[2][1]].mean(0))
    with pytest.raises(WorkbenchError, match="'square'"):
        app.run(["show", "attention", str(matching), str(corpus), "--word", "sqare"], "workbench")
    with pytest.raises(WorkbenchError, match="--text has no words"):
        app.run(["show", "attention", str(matching), str(corpus), "--text", " "], "workbench")
    with pytest.raises(WorkbenchError, match="has 10 records"):
        app.run(["show", "attention", str(matching), str(corpus), "--record", "10"], "workbench")


def test_without_output_it_goes_to_the_runs_images(matching: Path, squares: Path) -> None:
    show("attention", matching, squares / "test", "--text", "it is red")
    assert (matching / "figures" / "attention-of-words.png").is_file()
    assert "it is red" in (matching / "figures" / "attention-of-words.json").read_text()


def test_the_transport_moves_every_word_to_regions(train: Callable[..., Path], squares: Path, tmp_path: Path) -> None:
    run = train("aligned", [{"objective": "vision.itm"}, {"objective": "vision.wra"}])
    show("alignment", run, squares / "test", "--record", 2, "--output", tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    opened = open_run(run, Wra, "")
    pair = read_pair(opened, Corpus.open(squares / "test"), 2)
    plan = transport(opened, pair)
    assert plan.shape == (len(pair.words), 4)
    assert plan.mean() == pytest.approx(1, rel=1e-3)  # all is moved, and 1 is an even share
    np.testing.assert_allclose(plan.mean(0), 1, rtol=1e-3)  # to every region alike
    with pytest.raises(WorkbenchError, match=r"vision\.wra"):
        app.run(["show", "alignment", str(squares / "runs" / "matching"), str(squares / "test")], "workbench")


def test_neighbours_are_those_of_the_scores(contrast: Path, squares: Path, tmp_path: Path) -> None:
    corpus, kept = squares / "test", tmp_path / "vectors.safetensors"
    reported = ["neighbours", contrast, corpus, "-k", 3, "--vectors", kept]
    show(*reported, "--text", "a red square", "-o", tmp_path / "images.png")
    show(*reported, "--record", 4, "-o", tmp_path / "captions.png")
    file = tmp_path / "query.png"
    file.write_bytes(Corpus.open(corpus).read(0, 4)["image"])
    show(*reported, "--image", file, "-o", tmp_path / "other.png")
    opened, records = open_run(contrast, Itc, ""), Corpus.open(corpus)
    scores, vectors = dual_scores(opened, records, size=64)
    known = embedded_items(opened, records, kept)
    np.testing.assert_array_equal(known.texts, scores.text.numpy())
    assert known.captions == vectors.captions
    assert known.owner.tolist() == vectors.owner
    assert known.captions_of(3) == ["a white square on the left.", "on the left it is white."]
    kept.write_bytes(b"other")
    with pytest.raises(WorkbenchError, match="is not a file of a corpus's vectors"):
        app.run(["show", *map(str, reported), "--record", "1"], "workbench")
    with pytest.raises(WorkbenchError, match="one query: --text SENTENCE"):
        app.run(["show", "neighbours", str(contrast), str(corpus)], "workbench")
    with pytest.raises(WorkbenchError, match="is empty; give a sentence"):
        app.run(["show", "neighbours", str(contrast), str(corpus), "--text", " "], "workbench")


def test_vectors_of_other_records_are_refused(contrast: Path, squares: Path, tmp_path: Path) -> None:
    opened, kept = open_run(contrast, Itc, ""), tmp_path / "vectors.safetensors"
    embedded_items(opened, Corpus.open(squares / "test"), kept)
    with pytest.raises(WorkbenchError, match=r"its corpus is .* name another file"):
        embedded_items(opened, Corpus.open(squares / "train"), kept)


def test_a_corpus_is_still_shown(squares: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(squares / "test", "--samples", 1)
    assert "image-text" in capsys.readouterr().out


@torch.no_grad()
def test_a_text_of_more_tokens_than_fit_is_drawn_as_it_was_read(matching: Path, squares: Path) -> None:
    text = "a red square on the left it is red a red square on the left it is red"
    pair = read_pair(open_run(matching, Itm, ""), Corpus.open(squares / "test"), 0, text)
    assert len(pair.words) == 14

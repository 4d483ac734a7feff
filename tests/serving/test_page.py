"""The page of `workbench serve`: its tabs say what the methods of a model return, and a control is asked as such."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench
from pipelines.demo.small_files import write_small_files
from workbench.core.errors import WorkbenchError
from workbench.serving import gradio_page as page
from workbench.serving.tab import Served, Tab, bars, marked

FEW = {"train.max_steps": 1, "train.num_workers": 0, "train.lr_schedule.warmup_steps": 0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    """Runs of one step: masked words, a class, a graph, images."""
    before, folder = Path.cwd(), tmp_path_factory.mktemp("page")
    os.chdir(folder)
    write_small_files(folder)
    workbench.prepare_text("notes.txt", "corpora/text")
    workbench.prepare_text("labelled.jsonl", "corpora/hours")
    workbench.prepare_triples("towns.tsv", "corpora/graph", entities="towns.jsonl")
    workbench.prepare_text("towns.txt", "corpora/towns")
    workbench.prepare("link", corpus="corpora/towns", graph="corpora/graph", output="corpora/world")
    workbench.prepare_text("stated.jsonl", "corpora/facts")
    workbench.prepare_image_text("captions.jsonl", "corpora/pairs", images="photos")
    questions = workbench.prepare_image_text("questions.jsonl", "corpora/questions", images="photos")
    corpora = ["corpora/text", "corpora/towns", "corpora/pairs", questions]
    workbench.prepare("tokenizer", corpora=corpora, output="corpora/tokenizer.json", vocab_size=300)
    workbench.pretrain("tiny-text", overrides=FEW)
    workbench.finetune("runs/tiny-text", "classify", "corpora/hours", "runs/hours", epochs=0.5)
    workbench.pretrain("demo-k-bert", "runs/knowing", FEW)
    workbench.pretrain("tiny-joint", overrides=FEW)
    workbench.finetune("runs/tiny-joint", "vqa", "corpora/questions", "runs/vqa", epochs=0.1, min_count=1)
    yield {name: Served(folder / "runs" / name) for name in ("tiny-text", "hours", "knowing", "tiny-joint", "vqa")}
    os.chdir(before)


def tab(name: str, *served: Served) -> Tab:
    return next(each for each in page.tabs_of(served) if each.name == name)


def said(shown: str) -> list[tuple[str, float]]:
    found = re.findall(r'"word">([^<]*)</span>.*?"share">([\d.]+)', shown)
    return [(word, float(share)) for word, share in found]


def test_each_run_has_the_tabs_that_it_can_answer(runs: dict[str, Served]) -> None:
    found = {name: [each.name for each in page.tabs_of([run])] for name, run in runs.items()}
    assert found["tiny-text"] == ["Fill in words", "Attention"]
    assert found["hours"] == ["Classify", "Attention"]
    assert "Vqa" in found["vqa"]
    assert {"Fill in words", "Search"} <= {*found["tiny-joint"]}


def test_words_of_two_runs_are_those_of_their_models(runs: dict[str, Served]) -> None:
    asked = tab("Fill in words", runs["tiny-text"], runs["knowing"])
    assert [run.name for run in asked.runs] == ["tiny-text", "knowing"]
    for run in asked.runs:
        guesses = run.model.fill_mask(run.sample("Oslo lies in [MASK].", None), k=8, task="text")[0]
        shown = said(asked.answer(run, None, "Oslo lies in [MASK]."))
        assert [word for word, _ in shown] == [guess.token for guess in guesses]
        assert [share for _, share in shown] == pytest.approx([guess.probability for guess in guesses], abs=6e-4)


def test_knowledge_is_drawn_and_a_control_removes_it(runs: dict[str, Served]) -> None:
    run = runs["knowing"]
    assert "no-kg" in run.controls
    town = next(iter(workbench.open_corpus("corpora/world")))
    start, end, *_ = town["spans"][0]
    text, asked = f"{town['text'][start:end]} lies in [MASK].", tab("Fill in words", run)
    shown = asked.answer(run, None, text)
    assert f"<mark>{text.partition(' ')[0]}</mark>" in shown
    assert '"note"' in shown
    without = asked.answer(run, "no-kg", text)
    assert "<mark>" not in without
    assert said(without) != said(shown)


def test_a_head_says_what_predict_says(runs: dict[str, Served]) -> None:
    asked, text = tab("Classify", runs["hours"]), "the market opens at 5"
    shares = runs["hours"].model.predict(text)["probabilities"]
    assert dict(said(asked.answer(runs["hours"], None, text, ""))) == pytest.approx(shares, abs=6e-4)
    with pytest.raises(WorkbenchError, match="nothing to read"):
        asked.answer(runs["hours"], None, " ", "")


def test_images_are_asked_and_searched(runs: dict[str, Served]) -> None:
    photo = sorted(Path("photos").iterdir())[0]
    answers = said(tab("Vqa", runs["vqa"]).answer(runs["vqa"], None, photo, "what colour is it?"))
    assert 0 < sum(share for _, share in answers) <= 1.01
    assert "question-only" in runs["vqa"].controls
    shown = tab("Search", runs["tiny-joint"]).answer(runs["tiny-joint"], None, [str(photo)], "a circle\na square\n")
    assert shown.count("<img ") == 3


def test_the_page_calls_the_tab_and_shows_its_error(runs: dict[str, Served]) -> None:
    gradio = pytest.importorskip("gradio")
    made = page.build_page([runs["hours"]])
    calls = [block.fn for block in made.fns.values()]
    assert said(calls[0](page.PLAIN, "the market opens at 5", ""))
    with pytest.raises(gradio.Error, match="nothing to read"):
        calls[0](page.PLAIN, "", "")


def test_what_no_tab_could_ask_is_refused(runs: dict[str, Served], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "SHIPPED", ("kg",))
    with pytest.raises(WorkbenchError, match="nothing on the page could ask"):
        page.tabs_of([runs["hours"]])


def test_what_is_shown_is_escaped() -> None:
    assert "<b>" not in bars([("<b>", 0.5)]) + marked("<b> x", [(0, 3, ["<b>"])])
    assert marked("ab cd", [(0, 2, []), (1, 4, []), (3, 5, [])]).count("<mark>") == 2


def test_arguments_without_the_library(runs: dict[str, Served], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from workbench.cli.serve import serve

    monkeypatch.setitem(sys.modules, "gradio", None)
    options: dict[str, Any] = {"runs": [runs["hours"].place]}
    with pytest.raises(WorkbenchError, match="serve"):
        serve(**options)

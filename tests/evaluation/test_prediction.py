"""What a run says of inputs without right answers: kinds of inputs, lines, messages. That predictions are those of an
evaluation is a contract of every task (`tests/contracts/test_evaluations.py`)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from tests.contracts.case_finder import case_of
from tests.contracts.cases import World
from workbench.cli.evaluation import predict
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.inputs import input_at

TEXTS = ["a good house", "it was bad"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    torch.set_num_threads(1)
    return case_of("evaluation", "classify").world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def extracting(tmp_path_factory: pytest.TempPathFactory) -> World:
    return case_of("evaluation", "extract").world(tmp_path_factory.mktemp("extract"))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """What the command prints, all of which are lines."""
    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        predict.run([*words], "workbench predict")
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_kind_of_input_says_the_same_of_a_text(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["classify", str(world.run)]
    wanted = [line["probabilities"] for line in said(capsys, *command, *TEXTS)]
    assert all(sum(row.values()) == pytest.approx(1, abs=1e-5) for row in wanted)
    (tmp_path / "lines.txt").write_text(f"{TEXTS[0]}\n\n{TEXTS[1]}\n")
    (tmp_path / "records.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (tmp_path / "table.csv").write_text("text,mood\n" + "".join(f"{text},good\n" for text in TEXTS))
    for file, keys in (("lines.txt", ["1", "3"]), ("records.jsonl", None), ("table.csv", None)):
        found = said(capsys, *command, str(tmp_path / file))
        assert [line["probabilities"] for line in found] == [pytest.approx(row, abs=1e-5) for row in wanted], file
        assert keys is None or [line["key"] for line in found] == keys, file
    model = workbench.load(world.run)
    listed = model.predict(TEXTS)
    assert [row["probabilities"] for row in listed] == [pytest.approx(row, abs=1e-5) for row in wanted]
    assert model.predict(TEXTS[0])["prediction"] == listed[0]["prediction"]
    assert model.predict([{"text": text} for text in TEXTS], "classify") == listed


def test_a_record_without_a_text_stops_or_is_left_out(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps({"text": TEXTS[0]}) + '\n{"txt": 3}\n')
    with pytest.raises(WorkbenchError, match=r"records.jsonl:2: no field 'text'.* with --on-error skip"):
        said(capsys, "classify", str(world.run), str(file))
    assert len(said(capsys, "classify", str(world.run), str(file), "--on-error", "skip")) == 1


def test_a_run_without_its_tokenizer_names_the_file(world: World, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world.run, tmp_path / "run"))
    (run / "tokenizer.json").unlink()
    with pytest.raises(WorkbenchError, match=r"run has no tokenizer.json, the copy of the tokenizer .* trained with"):
        workbench.load(run)


def test_several_places_have_keys_of_their_own(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("a good house\n")
    output = tmp_path / "out.jsonl"
    places = [str(tmp_path / "one.txt"), "it was bad", str(tmp_path / "two.txt")]
    with pytest.raises(SystemExit, match="0"):
        predict.run(["classify", str(world.run), *places, "--output", str(output)], "workbench predict")
    assert [json.loads(line)["key"] for line in output.read_text().splitlines()] == ["one.txt:1", "2", "two.txt:1"]
    assert "3 predictions" in " ".join(capsys.readouterr().out.split())


def test_a_limit_and_the_second_text_count(world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a good house\nit was bad\n")
    command = ["classify", str(world.run), str(tmp_path / "lines.txt"), "--limit", "1"]
    (alone,) = said(capsys, *command)
    (pair,) = said(capsys, *command, "--second", "it was bad")
    assert alone["probabilities"] != pair["probabilities"]
    in_python = workbench.load(world.run).predict(("a good house", "it was bad"))
    assert pair["probabilities"] == pytest.approx(in_python["probabilities"], abs=1e-5)


def test_a_place_that_is_not_there_is_no_text(tmp_path: Path) -> None:
    for place in ("corpora/new", "reviews.csv", "./x", "photo.jpg", str(tmp_path / "no")):
        with pytest.raises(WorkbenchError, match=r"there is no file or folder .*or a text of several words"):
            input_at(place)
    for text in ("word", "either/or is a text", "Ends with a point.", "x" * 5000, "", "s3://bucket/corpus"):
        assert input_at(text) == text
    assert input_at(str(tmp_path)) == tmp_path


def test_what_lacks_is_named(
    world: World, extracting: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "folder").mkdir()
    cases = {
        ("classify", str(world.run), str(tmp_path / "blank.txt")): "blank.txt has no line with a text",
        ("classify", str(world.run), str(tmp_path / "folder")): "folder",
        ("classify", str(world.run), "file:///nowhere/corpus"): "/nowhere/corpus",
        ("classify", str(world.run)): "nothing is given to predict",
        ("generate", str(world.run), "a"): r"generate predicts nothing .*allowed: choose, classify",
        ("classify", str(world.run), "corpora/new"): "there is no file or folder corpora/new",
        ("tag", str(world.run), "a house"): "no task with the objective token_classification",
        ("extract", str(extracting.run), "a house"): "input '1' has no question; say --question TEXT",
    }
    for words, message in cases.items():
        with pytest.raises((WorkbenchError, SystemExit)) as caught:
            predict.run([*words], "workbench predict")
        assert re.search(message, str(caught.value) + capsys.readouterr().err), words
    with pytest.raises(WorkbenchError, match="the task perplexity predicts nothing; allowed: choose, classify"):
        workbench.load(world.run).predict("a", "perplexity")
    with pytest.raises(WorkbenchError, match="no head that was fine-tuned for a task; name the task"):
        workbench.load(world.without).predict("a house")


def test_an_answer_has_its_place_and_an_empty_text_none(extracting: World) -> None:
    text = "a text that is read"
    empty, found = workbench.load(extracting.run).predict(["", text], question="what is read?")
    assert [empty["key"], found["key"]] == ["1", "2"]
    assert text[found["start"] : found["end"]] == found["prediction"]
    assert 0 <= found["probability"] <= 1
    assert not empty["prediction"]

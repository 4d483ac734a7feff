"""Exported folders in the forms of onnxruntime and torchao: equal outputs, equal labels, costs, refusals."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
import transformers
from safetensors import safe_open

import workbench
from tests.contracts.case_finder import case_of
from tests.contracts.cases import World
from tests.evaluation.conftest import make_texts, pretrain_on
from tests.interop.test_task_heads import released
from tests.interop.worlds import tokenizer
from workbench.cli.app import app
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.cost import costs
from workbench.evaluation.analysis.cost_figure import draw_costs
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.task_finder import find_task
from workbench.interop import onnx_file
from workbench.interop.checkpoint_files import ONNX, WEIGHTS
from workbench.interop.further_forms import check_forms
from workbench.interop.library_class import outputs_of, random_batches
from workbench.interop.model_card import CARD
from workbench.interop.scaled_tensors import scaled


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    torch.set_num_threads(1)
    return case_of("evaluation", "classify").world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of a folder are written below the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def accuracy(place: Path, corpus: str) -> float:
    task = find_task("classify")
    return evaluate(task, task.scoring(run=place, corpus=corpus), show=False).numbers["accuracy"]


def texts_of(world: World) -> list[dict[str, Any]]:
    return [
        {"text": sample["text"], "text_pair": sample["second"]} if sample.get("second") else {"text": sample["text"]}
        for sample in Corpus.open(world.corpus)
    ]


@pytest.mark.slow
def test_the_onnx_file_and_the_pipeline_say_what_predict_says(world: World, here: Path) -> None:
    folder = workbench.load(world.run).export(here / "out", "bert", also="onnx")
    ours = workbench.load(world.run).predict(Corpus.open(world.corpus), "classify")
    texts = texts_of(world)
    pipe = transformers.pipeline("text-classification", str(folder))
    assert [line["prediction"] for line in ours] == [pipe([text], truncation=True)[0]["label"] for text in texts]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    session = onnxruntime.InferenceSession(folder / ONNX, providers=["CPUExecutionProvider"])
    for size in (1, 2, 5):  # other sizes than those of the check
        group = [(each["text"], each["text_pair"]) if "text_pair" in each else each["text"] for each in texts[:size]]
        inputs = words(group, padding=True, return_tensors="pt")
        with torch.no_grad():
            wanted = model(**inputs).logits
        (found,) = session.run(["logits"], {name: value.numpy() for name, value in inputs.items()})
        torch.testing.assert_close(torch.from_numpy(found), wanted, atol=1e-5, rtol=0)
    card = (folder / CARD).read_text()
    assert "- `model.onnx`: opset 20; inputs input_ids, attention_mask, token_type_ids (int64" in card
    assert b".py" not in (folder / ONNX).read_bytes()  # no lines of files of this machine
    one, other = costs([folder], lengths=[8], batches=[1, 3], rounds=2)
    assert (one.engine, other.engine, other.place) == ("workbench", "onnxruntime", "out (onnx)")
    assert [each.operations for each in one.passes] == [each.operations for each in other.passes]
    assert other.disk == (folder / ONNX).stat().st_size
    workbench.load(world.run).export(folder, "bert")
    assert not (folder / ONNX).exists()
    assert "## Forms" not in (folder / CARD).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), [("roberta", "token_classification"), ("albert", "multiple_choice")])
def test_other_classes_have_the_form(family: str, kind: str, here: Path) -> None:
    folder = workbench.load(released(here / "theirs", family, kind)).export(
        here / "out", family, objective=kind, also="onnx"
    )
    (session,) = [onnxruntime.InferenceSession(folder / ONNX, providers=["CPUExecutionProvider"])]
    assert len(session.get_inputs()[0].shape) == (3 if kind == "multiple_choice" else 2)
    assert (len(session.get_inputs()) == 2) == (family == "roberta")


@pytest.mark.slow
def test_an_int8_folder_reopens_and_is_evaluated_as_its_class_computes(
    world: World, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = workbench.load(world.run).export(here / "plain", "bert")
    with pytest.raises(SystemExit, match="0"):
        app.run(["export", str(world.run), "--as", "bert", "--int8", "--output", "int8"], "workbench")
    before, after = ((here / name / WEIGHTS).stat().st_size for name in ("plain", "int8"))
    assert after < before
    assert f"{before:,} bytes before, {after:,} after" in " ".join(capsys.readouterr().out.split())
    with safe_open(here / "int8" / WEIGHTS, "pt") as file:
        kinds = {str(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    assert "I8" in kinds
    pipe = transformers.pipeline("text-classification", "int8", top_k=None)
    ours = workbench.load(here / "int8").predict(Corpus.open(world.corpus), "classify")
    exact = workbench.load(plain).predict(Corpus.open(world.corpus), "classify")
    right = 0
    samples = list(Corpus.open(world.corpus))
    for line, float_line, text, sample in zip(ours, exact, texts_of(world), samples, strict=True):
        (found,) = pipe([text], truncation=True)
        theirs = {each["label"]: each["score"] for each in found}
        assert line["probabilities"] == pytest.approx(theirs, abs=1e-5)
        assert line["probabilities"] != pytest.approx(float_line["probabilities"], abs=1e-9)  # it was rounded
        right += found[0]["label"] in map(str, sample["labels"].values())
    assert accuracy(here / "int8", world.corpus) == pytest.approx(right / len(samples))
    accuracy(plain, world.corpus)
    found_costs = costs([plain, here / "int8"], lengths=[8], batches=[1], rounds=2)
    assert [each.engine for each in found_costs] == ["workbench", "torchao"]
    assert all(f"classify/accuracy on {Path(world.corpus).name}" in each.results for each in found_costs)
    assert found_costs[0].parameters == found_costs[1].parameters
    assert draw_costs(found_costs, here / "cost.svg") == f"classify/accuracy on {Path(world.corpus).name}"
    assert "plain" in (here / "cost.svg").read_text()


@pytest.mark.slow
def test_a_network_without_linear_layers_is_not_rounded(here: Path) -> None:
    words = json.loads(tokenizer(here / "tokenizer.json").read_text())["model"]["vocab"]
    sizes = {"vocab_size": len(words), "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 40}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).save_pretrained(here)
    with pytest.raises(WorkbenchError, match="--int8: GPT2LMHeadModel has no linear layer of torch"):
        workbench.load(here).export(here / "out", "gpt2", int8=True)


def test_scales_of_rows_are_multiplied_in() -> None:
    numbers, scale = torch.tensor([[2, -4], [127, 0]], dtype=torch.int8), torch.tensor([[0.5], [2.0]])
    stored = {"a._weight_qdata": numbers, "a._weight_scale": scale, "a._weight_zero_point": torch.zeros(2, 1).char()}
    found = scaled({**stored, "a.bias": torch.ones(2)})
    assert {*found} == {"a.weight", "a.bias"}
    assert torch.equal(found["a.weight"], torch.tensor([[1.0, -2.0], [254.0, 0.0]]))
    groups = {**stored, "a._weight_scale": torch.ones(2, 2)}
    assert {*scaled(groups)} == {*groups}  # another way of rounding is not read as this one


def test_outputs_that_are_no_numbers_are_no_agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ONNX).touch()
    model = transformers.BertModel(
        transformers.BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    ).eval()
    names = ["input_ids", "attention_mask"]
    broken = [{**outputs_of(model, given)} for given in random_batches(model, tmp_path, names)]
    broken[1]["pooler_output"][0, 0] = torch.nan
    left = iter(broken)
    monkeypatch.setattr(onnx_file, "OnnxModel", lambda folder: lambda given: next(left))
    with pytest.raises(WorkbenchError, match=r"model\.onnx differs from BertModel by nan, and is removed"):
        onnx_file._checked(model, tmp_path, names, [], 20)
    assert onnx_file._reason(RuntimeError("")) == "RuntimeError"


def test_what_cannot_be_written_is_refused_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = workbench.load(pretrain_on(make_texts(tmp_path_factory.mktemp("base"))))
    with pytest.raises(WorkbenchError, match="--int8 and --also onnx exclude each other"):
        model.export(tmp_path / "out", "bert", also=["onnx"], int8=True)
    with pytest.raises(WorkbenchError, match=r"--also\[0\] = 'onn'; allowed: sentence-transformers, onnx"):
        app.run(["export", "run", "--as", "bert", "--output", "out", "--also", "onn"], "workbench")
    with pytest.raises(WorkbenchError, match=r"also = 'onn'"):
        model.export(tmp_path / "out", "bert", also="onn")  # type: ignore[arg-type]
    with pytest.raises(WorkbenchError, match="--pool mean is the pooling of sentence-transformers; add --also sent"):
        model.export(tmp_path / "out", "bert", pool="mean")
    for also, int8, option in ((["onnx"], False, "--also onnx"), ([], True, "--int8")):
        with pytest.raises(WorkbenchError, match=f"{option}: the network reads text, image"):
            check_forms(also, int8, ["text", "image"])
    original = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name in ("onnxscript", "torchao"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(WorkbenchError, match=r"'onnxscript': pip install 'pretraining-workbench\[onnx\]'"):
        model.export(tmp_path / "out", "bert", also="onnx")
    with pytest.raises(WorkbenchError, match=r"'torchao': pip install 'pretraining-workbench\[int8\]'"):
        model.export(tmp_path / "out", "bert", int8=True)
    assert not (tmp_path / "out").exists()


def test_a_figure_needs_results_and_its_suffix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WorkbenchError, match="no network has a result to draw"):
        draw_costs([], tmp_path / "cost.svg")
    run = pretrain_on(make_texts(tmp_path))
    with pytest.raises(WorkbenchError, match=r"--figure .*cost\.png: allowed: a file that ends in \.svg"):
        app.run(["cost", str(run), "--figure", str(tmp_path / "cost.png")], "workbench")

"""Heads of downstream tasks come in from the library's classes and leave as these classes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from tests.evaluation.conftest import TEXTS, make_texts, prepare, pretrain_on
from tests.interop.worlds import WORDS, equal, tokenizer
from workbench.cli.export import export as command_export
from workbench.core.keyed import Draws
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import (
    ChooseScoring,
    ChooseTuning,
    ClassifyScoring,
    ClassifyTuning,
    ExtractScoring,
    ExtractTuning,
    RegressScoring,
    RegressTuning,
    TagScoring,
    TagTuning,
)
from workbench.evaluation.tasks.choose import MultipleChoiceTask
from workbench.evaluation.tasks.classify import Classification
from workbench.evaluation.tasks.extract import SpanExtractionTask
from workbench.evaluation.tasks.regress import RegressionTask
from workbench.evaluation.tasks.tag import TokenClassificationTask
from workbench.interop.checkpoint_writer import export
from workbench.interop.run_or_checkpoint import load
from workbench.interop.task_heads import HEADS
from workbench.pretraining.forward import read
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.batch import collate

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
RELATIVE = {"relative_attention": True, "share_att_key": True, "pos_att_type": "c2p|p2c"}
COUNTED = {"pad_token_id": 1, "max_position_embeddings": 42}
IDS = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "ernie": ("Ernie", SIZES),
    "roberta": ("Roberta", {**SIZES, **COUNTED, "type_vocab_size": 1}),
    "xlm_roberta": ("XLMRoberta", {**SIZES, **COUNTED, "type_vocab_size": 1}),
    "camembert": ("Camembert", {**SIZES, **COUNTED, "type_vocab_size": 1}),
    "longformer": ("Longformer", {**SIZES, **COUNTED, "type_vocab_size": 1, "attention_window": 4}),
    "distilbert": (
        "DistilBert",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40, "pad_token_id": 0},
    ),
    "deberta_v2": (
        "DebertaV2",
        {**SIZES, "relative_attention": True, "share_att_key": True, "pos_att_type": "c2p|p2c"},
    ),
    "albert": ("Albert", {**SIZES, "embedding_size": 16}),
    "electra": ("Electra", {**SIZES, "embedding_size": 16}),
    "mpnet": ("MPNet", {**SIZES, **COUNTED}),
    "modernbert": ("ModernBert", {**SIZES, **IDS, "local_attention": 8}),
    "mobilebert": ("MobileBert", {**SIZES, "embedding_size": 16, "intra_bottleneck_size": 16}),
    "xlm": ("XLM", {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 40, "pad_token_id": 0}),
}
TAGS = ["O", "B-place", "I-place"]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "classify": ("SequenceClassification", {"id2label": {0: "bad", 1: "good", 2: "neither"}}),
    "regression": ("SequenceClassification", {"id2label": {0: "stars"}, "problem_type": "regression"}),
    "token_classification": ("TokenClassification", {"id2label": dict(enumerate(TAGS))}),
    "span_extraction": ("QuestionAnswering", {}),
    "multiple_choice": ("MultipleChoice", {}),
}
UNLIKE = {("longformer", kind) for kind in KINDS if kind != "token_classification"}
UNLIKE |= {("modernbert", "token_classification"), ("modernbert", "span_extraction"), ("xlm", "multiple_choice")}
CASES = [(family, kind) for family in FAMILIES for kind in KINDS if (family, kind) not in UNLIKE]
SAMPLES: dict[str, dict[str, Any]] = {
    "token_classification": {"text": " ".join(WORDS[:7]), "tags": []},
    "span_extraction": {"text": " ".join(WORDS[:9]), "second": "where", "answers": [], "answer_spans": []},
    "multiple_choice": {"text": " ".join(WORDS[:5]), "choices": ["the river", "a small town"], "answer": 1},
}


def released(folder: Path, family: str, kind: str, **changes: Any) -> Path:
    """The folder that the library writes of a class with random weights, with a tokenizer."""
    library, sizes = FAMILIES[family]
    suffix, stated = KINDS[kind]
    words = json.loads(tokenizer(folder / "tokenizer.json").read_text())["model"]["vocab"]
    torch.manual_seed(0)
    config = getattr(transformers, f"{library}Config")(vocab_size=len(words), **{**sizes, **stated, **changes})
    simple = "Simple" if library == "XLM" and suffix == "QuestionAnswering" else ""
    model = getattr(transformers, f"{library}For{suffix}{simple}")(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return folder


def logits_of(loaded: LoadedRun, kind: str) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits of our head for a sample, and the inputs of the library for its sequences, which are equally long."""
    sample = SAMPLES.get(kind, {"text": " ".join(WORDS[:7]), "second": " ".join(WORDS[3:6])})
    task = loaded.tasks[kind].evaluating()
    sequences = task.sequences([{"key": "a", "draw": (0,), "labels": {}, **sample}])
    placed = task.objectives[0]
    if kind in SAMPLES:
        placed.objective.corrupt(sequences, Draws(0, "t", kind, number=(0,)))
    batch = collate(sequences)
    head, network = loaded.model.heads[kind], loaded.model.network(placed.network)
    states = read(network, batch)
    text, layer = batch.streams["text"], getattr(head, HEADS[kind].layer)
    with torch.no_grad():
        ours = layer(network.pool(states.states, batch) if HEADS[kind].pooled else states.states["text"])
    fields = {"input_ids": text.fields["input_ids"], "token_type_ids": text.fields["token_type_ids"]}
    counts = text.lengths
    padded = {
        name: torch.nn.utils.rnn.pad_sequence(list(f.split(counts)), batch_first=True) for name, f in fields.items()
    }
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(n, dtype=torch.long) for n in counts], batch_first=True)
    return ours, {**padded, "attention_mask": mask}


def their_logits(folder: Path, kind: str, inputs: dict[str, Tensor]) -> Tensor:
    model = getattr(transformers, f"AutoModelFor{KINDS[kind][0]}").from_pretrained(folder).eval()
    accepted = (
        inputs
        if model.config.model_type in ("bert", "ernie", "albert", "electra", "deberta-v2", "mobilebert")
        else {name: field for name, field in inputs.items() if name != "token_type_ids"}
    )
    if kind == "multiple_choice":
        accepted = {name: field[None] for name, field in accepted.items()}
    with torch.no_grad():
        found = model(**accepted)
    if kind == "span_extraction":
        return torch.stack([found.start_logits[0], found.end_logits[0]], 1)
    return found.logits[0] if kind == "token_classification" else found.logits


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_a_head_comes_in_and_leaves_as_it_was(family: str, kind: str, tmp_path: Path) -> None:
    folder = released(tmp_path / "theirs", family, kind)
    loaded = load(folder)
    ours, inputs = logits_of(loaded, kind)
    theirs = their_logits(folder, kind, inputs)
    torch.testing.assert_close(ours.view_as(theirs), theirs, atol=2e-6, rtol=1e-5)
    written = export(loaded, tmp_path / "ours", family, objective=kind, place=folder)
    equal(written.tensors, load_file(folder / "model.safetensors"))
    again = their_logits(tmp_path / "ours", kind, inputs)
    assert torch.equal(again, theirs)


def test_a_class_that_computes_something_else_stays_outside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The network is read without its head, and the log says why."""
    folder = released(tmp_path / "tags", "modernbert", "token_classification")
    assert [*load(folder).tasks] == ["text"]
    assert "the head of ModernBertForTokenClassification is left out: it computes something else" in caplog.text
    several = released(tmp_path / "several", "bert", "classify", problem_type="multi_label_classification")
    assert [*load(several).tasks] == ["text"]
    assert "its labels do not exclude each other" in caplog.text


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a folder are written below the current one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain_on(make_texts(tmp_path_factory.mktemp("base")))


def tuned(
    task: Any, tuning: Any, base: Path, folder: Path, lines: list[dict[str, Any]], **options: Any
) -> tuple[Path, str, Path]:
    """A run that is fine-tuned on a corpus, the corpus, and the folder to which the command exports the run."""
    folder.mkdir(exist_ok=True)
    corpus = prepare(folder, "corpus", lines)
    quick = {"epochs": 12.0, "batch_size": 4, "lr": 1e-2, "overrides": ["train.num_workers=0", "model.poolers=[text]"]}
    run = fine_tune(task, tuning(run=base, corpus=corpus, output=folder / "run", **{**quick, **options}))
    command_export(run, folder / "exported", "bert")
    return run, corpus, folder / "exported"


def said(
    task: Any, scoring: Any, run: Path, corpus: str, folder: Path
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The numbers of an evaluation, and its predictions by item."""
    file = folder / f"{run.name}.jsonl"
    found = evaluate(task, scoring(run=run, corpus=corpus, predictions=file))
    return found.numbers, [json.loads(line) for line in file.read_text().splitlines()]


def test_the_pipeline_of_the_library_says_what_our_evaluation_says(base: Path, tmp_path: Path) -> None:
    """For single texts, pairs and texts that are cut; a folder that came out is evaluated to the same numbers."""
    lines = [
        line | {"second": text.replace("is", "was")} if row % 3 else line
        for row, (line, text) in enumerate(
            ({"text": text, "labels": {"age": text.split()[-2]}}, text) for text in [*TEXTS, " ".join(TEXTS[:8])]
        )
    ]
    run, corpus, folder = tuned(Classification(), ClassifyTuning, base, tmp_path, lines, max_length=24)
    numbers, items = said(Classification(), ClassifyScoring, run, corpus, tmp_path)
    pipe = transformers.pipeline("text-classification", str(folder))
    asked = [{"text": line["text"], "text_pair": line.get("second")} for line in lines]
    theirs = [pipe(each if each["text_pair"] else each["text"], truncation=True, top_k=1)[0] for each in asked]
    assert [item["prediction"] for item in items] == [found["label"] for found in theirs]
    assert len({found["label"] for found in theirs}) > 1
    for item, found in zip(items, theirs, strict=True):
        scores = torch.tensor(list(item["scores"].values())).softmax(0)
        assert math.isclose(float(scores.max()), found["score"], rel_tol=1e-4)
    again, others = said(Classification(), ClassifyScoring, folder, corpus, tmp_path)
    assert (again, [item["prediction"] for item in others]) == (numbers, [item["prediction"] for item in items])
    right = [line["labels"]["age"] == found["label"] for line, found in zip(lines, theirs, strict=True)]
    assert again["accuracy"] == pytest.approx(sum(right) / len(right))
    further = ClassifyTuning(run=folder, corpus=corpus, output=tmp_path / "further", epochs=0.1, lr=1e-9, max_length=24)
    after, _ = said(Classification(), ClassifyScoring, fine_tune(Classification(), further), corpus, tmp_path)
    assert after == numbers


def test_the_head_of_a_folder_is_trained_further_by_the_names_of_its_labels(base: Path, tmp_path: Path) -> None:
    """In whatever order the folder has them; a new label starts with a fresh row."""
    folder = released(tmp_path / "theirs", "bert", "classify", id2label={0: "old", 1: "lost", 2: "new"})
    lines = [{"text": text, "labels": {"age": text.split()[-2]}} for text in TEXTS[:6]]
    corpus = prepare(tmp_path, "corpus", [*lines, {"text": WORDS[0], "labels": {"age": "odd"}}])
    run = fine_tune(
        Classification(),
        ClassifyTuning(run=folder, corpus=corpus, output=tmp_path / "run", epochs=0.1, lr=1e-12),
    )
    found = load(run)
    assert [*found.tasks["classify"].objectives[0].objective.classes] == ["lost", "new", "odd", "old"]  # type: ignore[attr-defined]
    rows = load_file(folder / "model.safetensors")["classifier.weight"]
    own = found.model.heads["classify"].classifier.weight.detach()  # type: ignore[union-attr]
    torch.testing.assert_close(own[[3, 0, 1]], rows, atol=1e-9, rtol=1e-6)  # type: ignore[index]


def test_tags_of_the_pipeline_are_those_of_our_evaluation(base: Path, tmp_path: Path) -> None:
    """A word has the label of its first token, as by `aggregation_strategy="first"`."""
    places = [(text.index(text.split()[2]), text.split()[2], text) for text in TEXTS]
    lines = [{"text": text, "tags": [[at, at + len(word), "thing"]]} for at, word, text in places]
    run, corpus, folder = tuned(TokenClassificationTask(), TagTuning, base, tmp_path, lines)
    numbers, items = said(TokenClassificationTask(), TagScoring, run, corpus, tmp_path)
    pipe = transformers.pipeline("token-classification", str(folder), ignore_labels=[])
    for item, line in zip(items, lines, strict=True):
        theirs = {found["start"]: found["entity"] for found in pipe(line["text"])}
        assert [theirs[start] for start, _ in item["words"]] == item["prediction"]
    assert any("B-thing" in item["prediction"] for item in items)
    assert said(TokenClassificationTask(), TagScoring, folder, corpus, tmp_path)[0] == numbers


def test_an_answer_is_the_best_span_of_the_exported_scores(base: Path, tmp_path: Path) -> None:
    lines = []
    for text in TEXTS:
        at = text.index(text.split()[-2])
        answer = {"answers": [text.split()[-2]], "answer_spans": [[at, at + len(text.split()[-2])]]}
        lines.append({"text": text, "second": f"the {text.split()[2]} is", **answer})
    run, corpus, folder = tuned(SpanExtractionTask(), ExtractTuning, base, tmp_path, lines)
    numbers, items = said(SpanExtractionTask(), ExtractScoring, run, corpus, tmp_path)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    for item, line in zip(items, lines, strict=True):
        read = words(line["second"], line["text"], return_tensors="pt", return_offsets_mapping=True)
        places = read.pop("offset_mapping")[0].tolist()
        own = [row for row, part in enumerate(read.sequence_ids(0)) if part == 1]
        with torch.no_grad():
            found = model(**read)
        best = max(
            ((first, last) for first in own for last in own if first <= last),
            key=lambda ends: float(found.start_logits[0, ends[0]] + found.end_logits[0, ends[1]]),
        )
        assert item["prediction"] == line["text"][places[best[0]][0] : places[best[1]][1]]
    assert said(SpanExtractionTask(), ExtractScoring, folder, corpus, tmp_path)[0] == numbers


def test_regression_and_choices_leave_and_are_evaluated_alike(base: Path, tmp_path: Path) -> None:
    stars = [{"text": text, "labels": {"stars": row / 4}} for row, text in enumerate(TEXTS)]
    run, corpus, folder = tuned(RegressionTask(), RegressTuning, base, tmp_path / "r", stars)
    numbers, items = said(RegressionTask(), RegressScoring, run, corpus, tmp_path / "r")
    assert said(RegressionTask(), RegressScoring, folder, corpus, tmp_path / "r")[0] == pytest.approx(numbers)
    pipe = transformers.pipeline("text-classification", str(folder), function_to_apply="none")
    theirs = pipe([line["text"] for line in stars])
    assert [item["prediction"] for item in items] == pytest.approx([each["score"] for each in theirs], abs=1e-5)
    assert {each["label"] for each in theirs} == {"stars"}
    asked = [{"text": text, "choices": TEXTS[:3], "answer": row % 3} for row, text in enumerate(TEXTS)]
    run, corpus, folder = tuned(MultipleChoiceTask(), ChooseTuning, base, tmp_path / "c", asked)
    numbers, items = said(MultipleChoiceTask(), ChooseScoring, run, corpus, tmp_path / "c")
    assert said(MultipleChoiceTask(), ChooseScoring, folder, corpus, tmp_path / "c")[0] == numbers
    model = transformers.AutoModelForMultipleChoice.from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    for item, line in zip(items, asked, strict=True):
        read = words([line["text"]] * 3, line["choices"], padding=True, return_tensors="pt")
        with torch.no_grad():
            scores = model(**{name: field[None] for name, field in read.items()}).logits[0]
        assert item["scores"] == pytest.approx(scores.tolist(), abs=1e-5)

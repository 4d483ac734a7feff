"""Text to text: fine-tuned from pretraining's own objective, scored by the libraries, in two streams and in one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, network, prepare, recipe_tree
from tests.loaded_runs import generate_texts
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import GenerateScoring, GenerateTuning
from workbench.evaluation.tasks.generate import Generation
from workbench.generation.decoding import Decoding
from workbench.interop.run_or_checkpoint import load
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.missing_fields import how_to_prepare
from workbench.training.pretrain import pretrain

COLOURS, THINGS = ("red", "blue"), ("house", "boat")
ROWS = [
    {"text": f"the {colour} {thing} .", "second": f"the {thing} is {colour} ."}
    for colour in COLOURS
    for thing in THINGS
]
PAIRS = [{"translations": {"en": row["text"], "x": row["second"]}} for row in ROWS]


def two_streams() -> dict[str, Any]:
    """An encoder and a decoder."""
    text = {"embedding": "token", "hidden_size": 32, "vocab_size": 320, "max_positions": 40, "dropout": 0.0}
    quiet = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    layers = [
        {"layer": "self", "stream": "text", **quiet},
        {"layer": "cross", "stream": "target", "to": "text", **quiet},
    ]
    return {
        "streams": {"text": text, "target": dict(text)},
        "layers": layers,
        "tie": {"target.token": "text.token"},
        "init_range": 0.1,
    }


def pretrained(
    folder: Path, model: dict[str, Any], objective: dict[str, Any], corpus: str | None = None, **sequence: Any
) -> Path:
    tree = recipe_tree(make_texts(folder), model, [objective])
    if corpus is not None:
        tree["tasks"]["text"]["corpora"] = [corpus]
    tree["tasks"]["text"]["sequence"] |= sequence
    return pretrain(recipe_from_dict(tree), folder / "runs" / "base")


def tuning(run: Path, corpus: str, **options: Any) -> GenerateTuning:
    wanted: dict[str, Any] = {"epochs": 1.0, "batch_size": 4, "lr": 5e-3, **options}
    return GenerateTuning(run=run, corpus=corpus, overrides=["train.num_workers=0"], **wanted)


def contract_world(folder: Path) -> World:
    base = pretrained(folder, two_streams(), {"objective": "span_corruption", "sentinels": 9, "head": {"tied": False}})
    corpus = prepare(folder, "pairs", ROWS)
    run = fine_tune(Generation(), tuning(base, corpus, output=folder / "run"))
    return World(run, corpus, base, {"max_new_tokens": 6})


CASE = EvaluationCase(world=contract_world)


@pytest.mark.parametrize("name", ["span_corruption", "denoising", "causal", "prefix"])
def test_a_run_learns_to_write_and_is_scored(name: str, tmp_path: Path) -> None:
    """By the objective that it was pretrained with, whose head continues with its weights."""
    objectives: dict[str, dict[str, Any]] = {
        "span_corruption": {"objective": "span_corruption", "sentinels": 9, "head": {"tied": False}},
        "denoising": {"objective": "denoising", "noises": [{"noise": "mask", "rate": 0.3}]},
    }
    if name in objectives:
        base = pretrained(tmp_path, two_streams(), objectives[name])
    elif name == "causal":
        base = pretrained(tmp_path, network(32) | {"init_range": 0.1}, {"objective": "clm"}, visibility="causal")
    else:
        sequence = {"builder": "sentence_pair", "visibility": "prefix"}
        pairs = prepare(tmp_path, "rows", ROWS)
        base = pretrained(tmp_path, network(32) | {"init_range": 0.1}, {"objective": "clm"}, pairs, **sequence)
    corpus = prepare(tmp_path, "pairs", PAIRS)
    reported = tuning(base, corpus, epochs=150.0, source="en", target="x", output=tmp_path / "tuned")
    recipe = recipe_of(Generation(), reported)
    (task,) = recipe.tasks.values()
    assert task.objectives[0].get("objective") == ("clm" if name not in objectives else name)
    assert task.sequence.visibility == (name if name not in objectives else None)
    run = fine_tune(Generation(), reported)
    scoring: dict[str, Any] = {"run": run, "corpus": corpus}
    found = evaluate(Generation(), GenerateScoring(**scoring))
    assert found.numbers["bleu"] > 90
    assert found.baselines["the text itself"]["bleu"] < 40
    texts = [json.loads(line) for line in (run / "evaluations/generate-pairs.jsonl").read_text().splitlines()]
    assert [text["gold"] for text in texts] == [row["second"] for row in ROWS]
    assert [text["text"] for text in texts] == [row["text"] for row in ROWS]
    theirs = sacrebleu.corpus_bleu([t["prediction"] for t in texts], [[t["gold"] for t in texts]])
    assert found.numbers["bleu"] == pytest.approx(theirs.score)
    assert "tok:13a" in found.variant
    beams = evaluate(Generation(), GenerateScoring(**scoring, beams=3))
    assert beams.numbers["bleu"] > 90
    names = {f"generate-pairs{options}{suffix}" for options in ("", "-beams=3") for suffix in (".json", ".jsonl")}
    assert {path.name for path in (run / "evaluations").iterdir()} >= names  # the texts are called as their result
    assert (
        generate_texts(load(run), [ROWS[0]["text"]], Decoding(max_new_tokens=12))[0].strip() == texts[0]["prediction"]
    )


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    base = pretrained(tmp_path, two_streams(), {"objective": "denoising"})
    corpus = prepare(tmp_path, "pairs", ROWS)
    for options, message in (
        ({"source": "en"}, "name both languages"),
        ({"source": "en", "target": "x"}, "translations"),
        ({"max_target_length": 1}, "no room"),
    ):
        with pytest.raises(WorkbenchError, match=message):
            recipe_of(Generation(), tuning(base, corpus, **options))
    plain = prepare(tmp_path, "plain", [{"text": "the red house ."}])
    with pytest.raises(WorkbenchError, match="no 'second'") as reported:
        recipe_of(Generation(), tuning(base, plain))
    assert how_to_prepare("second") in str(reported.value)


def test_ends_are_those_of_a_conversation_and_learned_rows_have_room(tmp_path: Path) -> None:
    """The builder's own begin, none, though the recipe does not state it; and 3 rows are before the text."""
    model = network(16)
    text = {**model["streams"]["text"], "max_positions": 60}
    prompt = {"embedding": "queries", "hidden_size": 16, "count": 3}
    layers = [
        {**{k: v for k, v in layer.items() if k != "stream"}, "layer": "joint", "streams": ["prompt", "text"]}
        for layer in model["layers"]
    ]
    transforms = [
        {"transform": "queries", "stream": "prompt", "count": 3, "of": "text"},
        {"transform": "before", "streams": ["prompt", "text"]},
    ]
    talk = prepare(tmp_path, "talk", [{"turns": [row["text"], row["second"]]} for row in ROWS])
    template = {"user": "the ", "assistant": "is "}
    sequence = {"builder": "conversation", "end": "sep", "template": template, "max_length": 50}
    base = pretrained(
        tmp_path,
        {**model, "streams": {"text": text, "prompt": prompt}, "layers": layers},
        {"objective": "clm"},
        talk,
        **sequence,
        transforms=transforms,
    )
    [task] = recipe_of(Generation(), tuning(base, prepare(tmp_path, "pairs", ROWS))).tasks.values()
    builder: Any = task.sequence.builder
    assert (builder["begin"], builder["end"]) == (None, "sep")
    assert builder["max_length"] == 57


def test_a_run_that_writes_nothing_is_refused(tmp_path: Path, prepared: Callable[..., str]) -> None:
    base = pretrained(tmp_path, network(16), {"objective": "mlm"})
    with pytest.raises(WorkbenchError, match="cannot generate text"):
        recipe_of(Generation(), tuning(base, prepared("pairs", ROWS)))


def test_languages_that_are_not_named_are_asked_for(tmp_path: Path) -> None:
    objective = {"objective": "span_corruption", "sentinels": 9, "head": {"tied": False}}
    base = pretrained(tmp_path, two_streams(), objective)
    corpus = prepare(tmp_path, "pairs", PAIRS)
    asked = r"holds translations \(en, x\); name the language that is read .* --source and --target; {} not given"
    for named, unsaid in (({}, "--source and --target"), ({"source": "en"}, "--target")):
        with pytest.raises(WorkbenchError, match=asked.format(unsaid)):
            recipe_of(Generation(), tuning(base, corpus, **named))

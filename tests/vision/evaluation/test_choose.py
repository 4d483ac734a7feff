"""Published sets from their files to a result: A-OKVQA's choices by `choose`, SNLI-VE's classes by `classify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.test_commands import prepare
from tests.vision.evaluation.conftest import COLOURS, photograph
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ChooseScoring, ChooseTuning, ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.choose import MultipleChoiceTask
from workbench.evaluation.tasks.classify import Classification
from workbench.runs.folder import read_recipe

NAMES = list(COLOURS)
HERE: dict[str, Any] = {"overrides": ["train.num_workers=0"], "batch_size": 8, "lr": 3e-3}


def corpus(folder: Path, name: str, rows: list[dict[str, Any]], images: dict[str, bytes]) -> str:
    """What `prepare image-text` makes of a set's file and its photographs."""
    (folder / "photographs").mkdir(exist_ok=True)
    for file, data in images.items():
        (folder / "photographs" / file).write_bytes(data)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare("image-text", path, "--images", folder / "photographs", "-o", folder / name, "--workers", 1)
    return str(folder / name)


def asked(number: int) -> dict[str, Any]:
    """A-OKVQA's form: two choices, of which the image shows one."""
    colour, other = NAMES[number % 4], NAMES[(number + 1 + number // 4 % 3) % 4]
    choices = [colour, other] if number // 3 % 2 else [other, colour]
    return {
        "split": "train",
        "image_id": number,
        "question_id": f"q{number}",
        "question": "what color is the square?",
        "choices": choices,
        "correct_choice_idx": choices.index(colour),
        "direct_answers": [colour] * 10,
        "difficult_direct_answer": False,
        "rationales": ["It is to be seen."] * 3,
    }


@pytest.fixture(scope="module")
def choosing(matching: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    folder = tmp_path_factory.mktemp("aokvqa")
    images = {f"{n:012d}.jpg": photograph(NAMES[n % 4], "left", n) for n in range(48)}
    train = corpus(folder, "train", [asked(n) for n in range(36)], images)
    test = corpus(folder, "test", [asked(n) for n in range(36, 48)], {})
    tuning = ChooseTuning(run=matching, corpus=train, epochs=25.0, output=folder / "run", held_out=test, **HERE)
    return fine_tune(MultipleChoiceTask(), tuning), train, test


def test_choices_next_to_an_image_are_learned(choosing: tuple[Path, str, str]) -> None:
    run, _, test = choosing
    assert read_recipe(run).tasks["choose"].sequence.builder["builder"] == "question_choices"
    result = evaluate(MultipleChoiceTask(), ChooseScoring(run=run, corpus=test, batch_size=4))
    assert result.counts == {"questions": 12, "choices": 24}
    assert result.numbers["accuracy"] > 0.8
    assert result.baselines["always the first"]["accuracy"] == 0.5
    assert result.examples[0]["text"] == "what color is the square?"
    blind = evaluate(MultipleChoiceTask(), ChooseScoring(run=run, corpus=test, batch_size=4, control="question-only"))
    assert blind.numbers["accuracy"] < result.numbers["accuracy"]


def test_entailment_of_images_is_a_classification(matching: Path, tmp_path: Path) -> None:
    """SNLI-VE's form: a record a pair, three classes; the pairs without a gold label are left out."""
    rows = [
        {
            "Flickr30K_ID": str(n),
            "pairID": f"{n}.jpg#0",
            "sentence1": "A square.",
            "sentence2": f"a {NAMES[n % 4]} square on the left.",
            "gold_label": ["entailment", "neutral", "contradiction", "-"][n % 4],
        }
        for n in range(16)
    ]
    made = corpus(tmp_path, "snli", rows, {f"{n}.jpg": photograph(NAMES[n % 4], "left", n) for n in range(16)})
    run = fine_tune(
        Classification(), ClassifyTuning(run=matching, corpus=made, epochs=18.0, output=tmp_path / "run", **HERE)
    )
    result = evaluate(Classification(), ClassifyScoring(run=run, corpus=made))
    assert result.counts["texts"] == 12
    assert set(result.classes) == {"entailment", "neutral", "contradiction"}
    assert result.numbers["accuracy"] > 0.8

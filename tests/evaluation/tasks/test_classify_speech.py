"""Classification of speech by its sound: of what a run with the builder `spoken_words` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.conftest import recipe_tree
from tests.pipelines.test_commands import prepare
from tests.videos import tone
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.training.pretrain import pretrain

LOW, HIGH = 300, 2500


def write_tones(folder: Path, count: int) -> Path:
    """Low and high tones, of which the same is said."""
    (folder / "sounds").mkdir(parents=True)
    rows = []
    for n in range(count):
        (folder / "sounds" / f"{n}.wav").write_bytes(tone((HIGH if n % 2 else LOW) + 7 * n, 0.6))
        words = [{"word": "a", "start": 0, "end": 0.3}, {"word": "film", "start": 0.3, "end": 0.6}]
        rows.append({"sound": f"{n}.wav", "transcript": "a film", "words": words, "pitch": "high" if n % 2 else "low"})
    (folder / "spoken.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / "spoken.jsonl"


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    for name, count in (("train", 48), ("dev", 20)):
        reported = ("--sounds", str(folder / name / "sounds"), "--mels", "8", "--option", "fields={labels: [pitch]}")
        prepare("speech-text", str(write_tones(folder / name, count)), *reported, "-o", str(folder / f"c-{name}"))
    return folder


@pytest.fixture(scope="module")
def run(speech: Path, texts: Path) -> Path:
    sizes: dict[str, Any] = {"hidden_size": 32, "max_positions": 40, "dropout": 0.0}
    heard = {"embedding": "segments", "feature_size": 8, "inner_size": 16, **sizes}
    layer = {"layer": "joint", "streams": ["text", "speech"], "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    model = {"streams": {"text": {"embedding": "token", **sizes}, "speech": heard}, "layers": [layer]}
    tree = recipe_tree(texts, model, [{"objective": "mlm", "stream": "speech"}])
    tree["tasks"]["text"]["corpora"] = [str(speech / "c-train")]
    tree["tasks"]["text"]["sequence"] = {"builder": "spoken_words", "max_length": 8, "max_frames": 40}
    return pretrain(recipe_from_dict(tree), speech / "run")


def tuning(run: Path, speech: Path, output: Path, **options: Any) -> ClassifyTuning:
    wanted: dict[str, Any] = {"epochs": 30.0, "batch_size": 8, "lr": 3e-3, **options}
    return ClassifyTuning(run=run, corpus=str(speech / "c-train"), output=output, **wanted)


@pytest.mark.long
def test_what_words_do_not_say_is_detected_by_the_sound(run: Path, speech: Path, tmp_path: Path) -> None:
    tuned = fine_tune(Classification(), tuning(run, speech, tmp_path / "tuned", overrides=["train.num_workers=0"]))

    def found() -> Result:
        return evaluate(Classification(), ClassifyScoring(run=tuned, corpus=str(speech / "c-dev")))

    result = found()
    assert result.numbers["accuracy"] == 1
    assert result.baselines["always high"]["accuracy"] == 0.5
    assert result.counts["texts"] == 20
    assert {example["text"] for example in result.examples} == {"a film"}
    assert found().numbers == result.numbers


def test_a_record_is_read_once_as_the_run_read_it(run: Path, speech: Path, tmp_path: Path) -> None:
    """Long speech is cut, not split: each recording has one class."""
    builder = dict(read_recipe(run).tasks["text"].sequence.builder)  # type: ignore[arg-type]
    [task] = recipe_of(Classification(), tuning(run, speech, tmp_path / "same")).tasks.values()
    assert task.sequence.builder == {**builder, "split": False}
    [task] = recipe_of(Classification(), tuning(run, speech, tmp_path / "shorter", max_length=3)).tasks.values()
    assert task.sequence.builder == {**builder, "split": False, "max_length": 3}


def test_a_run_that_hears_nothing_is_refused(pretrained: Path, speech: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"reads no speech.*`spoken_words`.*speechbert"):
        recipe_of(Classification(), tuning(pretrained, speech, tmp_path / "run"))


def test_labels_are_all_that_a_row_is_asked_for(speech: Path, tmp_path: Path) -> None:
    reported = ("--sounds", str(speech / "dev/sounds"), "-o", str(tmp_path / "none"))
    with pytest.raises(WorkbenchError, match=r"field 'words'.*labels"):
        prepare("speech-text", str(speech / "dev/spoken.jsonl"), *reported, "--option", "fields={words: [pitch]}")

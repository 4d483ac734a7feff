"""XLM: texts of several languages and pairs of translations, from raw files on; what one is taught another is asked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.commands.corpora.text import text as prepare_text
from pipelines.commands.corpora.tokenizer import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import command
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.recipe.reading import load_recipe
from workbench.runs.metrics_file import read_metrics
from workbench.training.data import first_batches
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

LANGUAGES = {
    "en": (["good", "new"], ["bad", "old"], "the song is {} ."),
    "de": (["gut", "neu"], ["schlecht", "alt"], "der Film ist {} ."),
}
SMALL = [
    "vars.languages=[de,en]",
    "model.streams.text.hidden_size=32",
    "model.streams.text.extra.language_ids=2",
    "model.layers[0].num_heads=2",
    "model.layers[0].intermediate_size=64",
    "train.global_batch_size=8",
    "train.micro_batch_size=4",
    "train.lr_schedule.warmup_steps=2",
    "train.log_every=1",
]


def sentences(count: int = 48) -> dict[str, list[tuple[str, int]]]:
    """By language the same sentences, each with whether its verdict is good."""
    rng = random.Random(0)
    drawn = [(int(rng.random() < 0.5), rng.randrange(2)) for _ in range(count)]
    return {
        name: [(frame.format((good if label else bad)[word]), label) for label, word in drawn]
        for name, (good, bad, frame) in LANGUAGES.items()
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands make of raw files: texts and reviews with a verdict of each language, pairs, a tokenizer."""
    folder = tmp_path_factory.mktemp("xlm")
    for language, found in sentences().items():
        file, reviews = folder / f"train.{language}", folder / f"reviews-{language}.tsv"
        file.write_text("".join(f"{text}\n" for text, _ in found))
        reviews.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in found))
        prepared(file, folder / language, option=["document=line"], language=language)
        prepared(reviews, folder / f"reviews-{language}", language=language)
    command(prepare_text)(
        inputs=[str(folder / "train.en"), str(folder / "train.de")], output=folder / "pairs", workers=1
    )
    prepared(folder / "train.en", folder / "unsaid")
    texts = [str(folder / language) for language in LANGUAGES]
    tokenizer(folder / "tokenizer.json", texts, vocab_size=90, size_exponent=0.5)
    return folder


def prepared(file: Path, output: Path, **options: Any) -> None:
    command(prepare_text)(inputs=[str(file)], output=output, workers=1, **options)


def small(data: Path, name: str, *more: str) -> Any:
    corpora = [f"vars.data={data}", f"vars.texts=[{data}/en,{data}/de]"]
    return load_recipe(name, [*corpora, *SMALL, *more])


def test_both_tasks_learn_and_a_run_continues_exactly(data: Path, tmp_path: Path) -> None:
    recipe = small(data, "xlm-tiny", "train.max_steps=40", "train.lr=1e-2")
    verdict = verify_resume(recipe, tmp_path / "resumed", steps=6)
    assert verdict.equal
    lines = read_metrics(pretrain(recipe, tmp_path / "run"))
    for name in ("text.mlm/loss", "pairs.mlm/loss"):
        losses = [line[name] for line in lines if name in line]
        assert np.mean(losses[-8:]) < 0.8 * np.mean(losses[:4])


def test_a_text_is_in_one_language_and_a_pair_in_two(data: Path) -> None:
    _, _, batches = first_batches(small(data, "xlm-tiny"))
    for task, languages in (("text", 1), ("pairs", 2)):
        text = batches[task].views["main"].streams["text"]
        for begin, end in zip(text.starts, text.starts[1:], strict=False):
            assert len(text.fields["language_ids"][begin:end].unique()) == languages
            assert (text.fields["position_ids"][begin:end] == 0).sum() == languages


def test_from_left_to_right(data: Path, tmp_path: Path) -> None:
    recipe = small(data, "xlm-clm-tiny", "train.max_steps=4")
    assert list(recipe.tasks) == ["text"]
    lines = read_metrics(pretrain(recipe, tmp_path / "run"))
    assert lines[-1]["clm/loss"] < lines[0]["clm/loss"]


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("tasks.pairs.corpora=[{}/en]", r"reads 'translations', .*`workbench prepare text FILE\.en FILE\.de"),
        (
            "tasks.text.corpora=[{}/unsaid]",
            r"reads 'language', .*`workbench prepare text FILES --language en",
        ),
    ],
)
def test_corpora_that_lack_what_is_read_are_refused_before_the_first_step(
    data: Path, tmp_path: Path, change: str, reported: str
) -> None:
    with pytest.raises(WorkbenchError, match=reported):
        pretrain(small(data, "xlm-tiny", change.format(data)), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_what_was_learned_of_one_language_is_asked_in_another(data: Path, tmp_path: Path) -> None:
    base = pretrain(small(data, "xlm-tiny", "train.max_steps=3"), tmp_path / "run")
    overrides = ["train.num_workers=0"]
    tuning = ClassifyTuning(
        run=base, corpus=str(data / "reviews-en"), output=tmp_path / "tuned", overrides=overrides, epochs=12, lr=1e-2
    )
    tuned = fine_tune(Classification(), tuning)
    found = [
        evaluate(Classification(), ClassifyScoring(run=tuned, corpus=str(data / f"reviews-{name}")))
        for name in LANGUAGES
    ]
    assert found[0].numbers["accuracy"] == 1
    assert 0 <= found[1].numbers["accuracy"] <= 1
    assert found[1].counts["texts"] == 48

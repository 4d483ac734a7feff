"""Tagging, from lines with tags to the result, and the same numbers in a held-out pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, prepare, pretrain_on
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.task_finder import find_task
from workbench.evaluation.task_options import TagScoring, TagTuning
from workbench.evaluation.task_panels import tagged
from workbench.evaluation.tasks.tag import TokenClassificationTask
from workbench.report.run import load_run
from workbench.runs.loaded_run import load
from workbench.runs.metrics_file import read_metrics

COLOURS, THINGS, STATES = ("red", "green", "blue"), ("house", "boat"), ("old", "new", "lost")


def rows(states: tuple[str, ...]) -> list[dict[str, Any]]:
    """Things with their colour are stretches of two words, states of one."""
    made = []
    for state in states:
        for colour in COLOURS:
            for thing in THINGS:
                text = f"the {colour} {thing} is {state} ."
                end = 4 + len(colour) + 1 + len(thing)
                tags = [[4, end, "thing"], [end + 4, end + 4 + len(state), "state"]]
                made.append({"text": text, "tags": tags})
    return made


def tuning(run: Path, corpus: str, **options: Any) -> TagTuning:
    wanted: dict[str, Any] = {"epochs": 10.0, "batch_size": 6, "lr": 1e-2, **options}
    quick = ["train.num_workers=0", *wanted.pop("overrides", [])]
    return TagTuning(run=run, corpus=corpus, overrides=quick, **wanted)


def contract_world(folder: Path) -> World:
    base, corpus = pretrain_on(make_texts(folder)), prepare(folder, "train", rows(STATES[:2]))
    return World(
        fine_tune(TokenClassificationTask(), tuning(base, corpus, output=folder / "run", epochs=1.0)), corpus, base, {}
    )


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def tuned(pretrained: Path, prepared: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    train, dev = prepared("tags", rows(STATES[:2])), prepared("tags-dev", rows(STATES[1:]))
    best = ["train.evaluate_every=10", "train.best=token_classification/f1"]
    output = tmp_path_factory.mktemp("tag") / "run"
    return fine_tune(TokenClassificationTask(), tuning(pretrained, train, output=output, overrides=best, held_out=dev))


def test_it_learns_and_a_held_out_pass_tells_the_same(tuned: Path, prepared: Callable[..., str]) -> None:
    found = evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=prepared("tags-dev", []), batch_size=5))
    assert found.numbers["f1"] > 0.6
    assert found.counts == {"words": 72, "chunks": 24, "tags": 5, "classes never predicted": 0}
    assert found.baselines["always O"] == pytest.approx({"accuracy": 0.5, "precision": 0, "recall": 0, "f1": 0})
    measured = [line for line in read_metrics(tuned) if "held_out/token_classification/f1" in line]
    best = max(measured, key=lambda line: line["held_out/token_classification/f1"])
    assert {name: best[f"held_out/token_classification/{name}"] for name in found.numbers} == pytest.approx(
        found.numbers
    )


def test_the_report_shows_chunks(tuned: Path, prepared: Callable[..., str]) -> None:
    found = evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=prepared("tags", [])))
    assert found.examples[0] == {
        "text": "the red house is old .",
        "predicted": [[4, 13, "thing"], [17, 20, "state"]],
        "gold": [[4, 13, "thing"], [17, 20, "state"]],
    }
    shown = tagged(load_run(tuned))
    assert shown is not None
    assert '<mark title="thing">red house</mark>' in shown
    assert "✓ old: state" in shown


def test_long_texts_are_scored_as_a_whole(tuned: Path, prepared: Callable[..., str]) -> None:
    """A chunk that is longer than a window is one; a word that the tokenizer makes nothing of is wrong, and counted."""
    text, size = "the red house is " * 30 + "old .", load(tuned).recipe.tasks["tag"].sequence.builder["max_length"]
    assert len(text.split()) > 2 * size
    long = [{"text": text, "tags": [[0, len(text) - 6, "thing"]]}, {"text": "\u200b", "tags": [[0, 1, "state"]]}]
    for size in (1, 2):
        scoring = TagScoring(run=tuned, corpus=prepared("long-tags", long), batch_size=size)
        found = evaluate(TokenClassificationTask(), scoring)
        lost = {"words without a token": 1, "classes never predicted": 0}
        assert found.counts == {"words": 123, "chunks": 2, "tags": 5, **lost}
        assert found.numbers["accuracy"] <= 122 / 123
        assert found.examples[1] == {"text": "\u200b", "predicted": [], "gold": [[0, 1, "state"]]}


def test_what_cannot_be_learnt_or_scored_is_refused(
    pretrained: Path, tuned: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    plain = prepared("untagged", [{"text": "the house is old ."}])
    with pytest.raises(WorkbenchError, match="has no tags"):
        recipe_of(TokenClassificationTask(), tuning(pretrained, plain, output=tmp_path / "run"))
    with pytest.raises(WorkbenchError, match="no texts with `tags`"):
        evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=plain))
    outside = prepared("outside", [{"text": "the house", "tags": [[0, 3, "O"], [4, 9, "O"]]}])
    with pytest.raises(WorkbenchError, match="no word of corpus 'outside' has a tag but O; nothing can be learned"):
        recipe_of(TokenClassificationTask(), tuning(pretrained, outside, output=tmp_path / "run"))
    nested = prepared("nested", [{"text": "the house", "tags": [[0, 9, "thing"], [4, 9, "place"]]}])
    with pytest.raises(WorkbenchError, match=r"corpus 'nested', key .* overlap, and a word has one tag"):
        recipe_of(TokenClassificationTask(), tuning(pretrained, nested, output=tmp_path / "run"))
    with pytest.raises(WorkbenchError, match=r"sequence .* overlap, and a word has one tag"):
        evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=nested))
    other = prepared("other-tags", [{"text": "the house", "tags": [[4, 9, "place"]]}])
    with pytest.raises(WorkbenchError, match="unknown tag 'B-place'"):
        evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=other))
    assert isinstance(find_task("tag"), TokenClassificationTask)


def test_the_tags_are_those_of_both_sets(pretrained: Path, prepared: Callable[..., str], tmp_path: Path) -> None:
    """A tag that the training set lacks would stop the run at its first held-out pass."""
    train, dev = prepared("few-tags", rows(STATES[:1])), [{"text": "we sang", "tags": [[0, 2, "O"], [3, 7, "S-verb"]]}]
    wanted = tuning(pretrained, train, output=tmp_path / "run", held_out=prepared("verbs", dev))
    (objective,) = recipe_of(TokenClassificationTask(), wanted).tasks["tag"].objectives
    assert objective["tags"] == ["O", "B-state", "B-thing", "I-state", "I-thing", "S-verb"]

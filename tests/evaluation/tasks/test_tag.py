"""Tagging, from lines with tags to the result, and the same numbers in a held-out pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.readers.row_fields import word_places
from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, prepare, pretrain_on
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.task_finder import find_task
from workbench.evaluation.task_options import TagScoring, TagTuning
from workbench.evaluation.task_panels import tagged
from workbench.evaluation.tasks.tag import TokenClassificationTask
from workbench.metrics.chunks import chunks
from workbench.objectives.token_classification import TokenClassification
from workbench.report.run import load_run
from workbench.runs.loaded_run import load
from workbench.runs.metrics_file import read_metrics
from workbench.sequences.sequence import Sequence

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


def test_it_learns_and_a_held_out_pass_says_the_same(tuned: Path, prepared: Callable[..., str]) -> None:
    found = evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=prepared("tags-dev", []), batch_size=5))
    assert found.numbers["f1"] > 0.6
    assert found.counts == {"words": 72, "chunks": 24, "tags": 5, "classes never predicted": 0}
    assert found.variant == "tags read as spans"
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


def test_what_cannot_be_learned_or_scored_is_refused(
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
    with pytest.raises(WorkbenchError, match=r"corpus 'nested', key .* overlap, and a word has one tag"):
        evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=nested))
    other = prepared("other-tags", [{"text": "the house", "tags": [[4, 9, "place"]]}])
    with pytest.raises(WorkbenchError, match="unknown tag 'B-place'"):
        evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=other))
    assert isinstance(find_task("tag"), TokenClassificationTask)


def test_the_tags_are_those_of_both_sets(pretrained: Path, prepared: Callable[..., str], tmp_path: Path) -> None:
    """A tag that the training set lacks would stop the run at its first held-out pass."""
    train, dev = prepared("few-tags", rows(STATES[:1])), [{"text": "we sang", "tags": [[0, 2, "O"], [3, 7, "verb"]]}]
    wanted = tuning(pretrained, train, output=tmp_path / "run", held_out=prepared("verbs", dev))
    (objective,) = recipe_of(TokenClassificationTask(), wanted).tasks["tag"].objectives
    assert objective["tags"] == ["O", "B-state", "B-thing", "B-verb", "I-state", "I-thing", "I-verb"]
    assert objective["scheme"] == "spans"
    mixed = prepared("mixed-tags", [{"text": "we sang", "tags": [[0, 2, "O"], [3, 7, "S-verb"]]}])
    wanted = tuning(pretrained, train, output=tmp_path / "run", held_out=mixed)
    with pytest.raises(WorkbenchError, match=r"S-verb would be IOBES; state, thing would not.*--scheme spans"):
        recipe_of(TokenClassificationTask(), wanted)
    (objective,) = recipe_of(TokenClassificationTask(), replace(wanted, scheme="IOBES")).tasks["tag"].objectives
    assert objective["tags"] == ["O", "B-state", "B-thing", "I-state", "I-thing", "S-verb"]


SPELT = {
    "BIO": "O O B-LOC I-LOC O B-LOC O",
    "IOB1": "O O I-LOC I-LOC O I-LOC O",
    "BILOU": "O O B-LOC L-LOC O U-LOC O",
    "BMES": "O O B-LOC M-LOC E-LOC S-LOC O",
    "IOBES": "O O B-LOC E-LOC O S-LOC O",
    "plain": "O O B I O B O",
    "underscores": "O O B_LOC I_LOC O B_LOC O",
    "lower case": "o o b-loc i-loc o b-loc o",
    "spans": [[12, 20, "LOC"], [25, 29, "LOC"]],
}
CITIES = "people near New York and Oslo live"


def cities(scheme: str) -> list[dict[str, Any]]:
    spelt = SPELT[scheme]
    return [{"text": CITIES, "tags": spelt.split() if isinstance(spelt, str) else spelt}] * 2


@pytest.mark.parametrize("scheme", SPELT)
def test_every_scheme_spells_the_same_chunks(
    pretrained: Path, prepared: Callable[..., str], scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the training labels, in the held-out scores and in the evaluation."""
    corpus = prepared(f"cities-{scheme}", cities(scheme))
    (spec,) = recipe_of(TokenClassificationTask(), tuning(pretrained, corpus)).tasks["tag"].objectives
    assert spec["scheme"] == {"IOB1": "BIO", "plain": "BIO", "underscores": "BIO", "lower case": "BIO"}.get(
        scheme, scheme
    )
    assert ("names of tags are read as" in caplog.text) == (scheme not in ("BIO", "IOB1", "IOBES", "spans"))
    objective = TokenClassification(spec["tags"], spec["scheme"])
    objective.name = "tag"
    (sample, *_) = Corpus.open(corpus)
    gold = objective._tagged(Sequence({}, (0,)), np.array(word_places(CITIES)), sample["tags"]).labels
    kind = {"plain": "chunk", "lower case": "loc"}.get(scheme, "LOC")
    first = (2, 5, kind) if scheme == "BMES" else (2, 4, kind)
    assert chunks(objective.names[row] for row in gold) == [first, (5, 6, kind)]


def test_another_scheme_of_the_test_set_gives_the_same_numbers(
    tuned: Path, prepared: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its chunks are spelt as those of the training set, and this is logged once and recorded."""
    dev = rows(STATES[1:])
    words = {"thing": ["B-thing", "L-thing"], "state": ["U-state"]}
    spelt = []
    for row in dev:
        _, first, second, _, third, _ = word_places(row["text"])
        names = [*words["thing"], *words["state"]]
        tags = [[*place, name] for place, name in zip((first, second, third), names, strict=True)]
        spelt.append({"text": row["text"], "tags": tags})
    of_spans, of_words = (
        evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=prepared(name, made)))
        for name, made in (("as-spans", dev), ("as-bilou", spelt))
    )
    assert of_words.numbers == of_spans.numbers
    assert of_words.counts == of_spans.counts
    assert of_words.variant == "tags read as BILOU"
    assert caplog.text.count("its tags are read as BILOU; those of the training set are spans") == 1


def test_tags_that_training_lacks_are_wrong_and_counted(
    tuned: Path, prepared: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    known = rows(STATES[:1])
    other = [{**row, "tags": [*row["tags"][:1], [*row["tags"][1][:2], "condition"]]} for row in known]
    numbers = []
    for name, made in (("known-tags", known), ("partly-known", [*known, *other]), ("condition", other)):
        found = evaluate(TokenClassificationTask(), TagScoring(run=tuned, corpus=prepared(name, made)))
        numbers.append(found)
    assert "gold of unknown classes" not in numbers[0].counts
    assert [found.counts["gold of unknown classes"] for found in numbers[1:]] == [6, 6]
    assert numbers[2].classes["condition"] == {"precision": 0, "recall": 0, "f1": 0, "gold": 6, "predicted": 0}
    assert "has 6 gold labels of 1 classes that the run does not know" in caplog.text

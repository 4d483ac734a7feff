"""Changed texts, and a trigger that is found where there is one to find."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, prepare, pretrain_on
from tests.evaluation.tasks.analysis_world import COLOURS
from tests.evaluation.tasks.test_cloze import tuning
from tests.evaluation.tasks.test_heads import LABELLED, labelled_run
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.triggers import TriggerSearch, exchanged, in_front, mistyped, single_words
from workbench.evaluation.analysis_options import RobustnessScoring
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.tasks.cloze import ClozeClassification
from workbench.evaluation.tasks.robustness import Robustness


def contract_world(folder: Path) -> World:
    corpus = prepare(make_texts(folder), "labelled", LABELLED)
    run = labelled_run(folder, corpus, folder / "run", 20)
    return World(run, corpus, pretrain_on(folder), {"draws": 2, "trigger": 1})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(tmp_path_factory.mktemp("labelled"), "labelled", LABELLED)


@pytest.fixture(scope="module")
def run(texts: Path, corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled_run(texts, corpus, tmp_path_factory.mktemp("run") / "run", 30, max_positions=None)


def opened(run: Path, corpus: str) -> Any:
    return Robustness().open(RobustnessScoring(run=run, corpus=corpus))


def test_changes_keep_links_and_depend_on_the_generator_alone() -> None:
    text = "Ann went to Oslo, where nobody answered."
    sample = {"text": text, "spans": [[12, 16, "oslo", 1.0]], "key": "a"}
    made = [mistyped(sample, np.random.default_rng(seed), 1.0) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]
    assert made[0]["text"].startswith("Ann w")
    words = exchanged(sample, np.random.default_rng(0), 1.0)
    assert sorted(re.findall(r"\w+", words["text"])) == sorted(re.findall(r"\w+", text))
    assert words["text"] != text
    behind = in_front(sample, ["two", "words"])
    assert behind["text"] == f"two words {text}"
    assert behind["spans"] == [[22, 26, "oslo", 1.0]]
    assert mistyped(sample, np.random.default_rng(0), 1e-9)["text"] == text


def test_as_many_words_are_exchanged_as_the_rate_says() -> None:
    text = " ".join(f"word{number}" for number in range(4000))
    for rate in (0.3, 1.0):
        made = exchanged({"text": text, "key": "a"}, np.random.default_rng(0), rate)["text"].split()
        moved = [one != other for one, other in zip(made, text.split(), strict=True)]
        assert np.mean(moved) == pytest.approx(rate, abs=0.03)


def test_changes_that_change_nothing_are_left_out(run: Path, tmp_path: Path) -> None:
    rows = [{**row, "text": " ".join(word[:3] for word in row["text"].split())} for row in LABELLED]
    short = prepare(tmp_path, "short", rows)
    found = evaluate(Robustness(), RobustnessScoring(run=run, corpus=short, trigger=1, draws=1), show=False)
    assert not [name for name in found if name.startswith("typos")]
    assert "typos change no text, and are left out" in found.variant
    assert "swaps/accuracy" in found


def test_a_trigger_that_no_text_shows_is_refused(run: Path, corpus: str) -> None:
    search = TriggerSearch(opened(run, corpus), [*Corpus.open(corpus)][:4])
    with pytest.raises(WorkbenchError, match="in no text are the words of the trigger"):
        search.gradients(["good bad"])  # two tokens in the place of one


def test_gradients_are_those_of_a_difference(run: Path, corpus: str) -> None:
    """Of the loss, when the row of one word moves a little: by finite differences of the table."""
    search = TriggerSearch(opened(run, corpus), [*Corpus.open(corpus)][:4])
    words = ["good", "bad"]
    assert set(words) <= set(single_words(search.run))
    found = search.gradients(words)
    for place, word in enumerate(words):
        row = search.table.weight.data[search.words[word]]
        step = torch.zeros_like(row)
        step[3] = 1e-2
        row += step
        up = search.loss(words)
        row -= 2 * step
        down = search.loss(words)
        row += step
        assert float(found[place, 3]) == pytest.approx((up - down) / 2e-2, rel=0.05, abs=1e-4)


def test_a_trigger_is_found_and_random_words_are_none(run: Path, corpus: str) -> None:
    """The head sees no difference in most words, so their random triggers change little."""
    found = evaluate(Robustness(), RobustnessScoring(run=run, corpus=corpus, trigger=2, draws=2, rate=1.0), show=False)
    assert found["accuracy"] == 1
    assert found["trigger/drop"] == pytest.approx(1 - found["trigger/accuracy"])
    assert found["trigger/accuracy"] < found["random_trigger/accuracy"]
    beyond = found["random_trigger/accuracy"] - found["trigger/accuracy"]
    assert found["trigger/drop_beyond_random"] == pytest.approx(beyond)
    assert found["typos/worst"] <= found["typos/accuracy"]
    search = TriggerSearch(opened(run, corpus), [*Corpus.open(corpus)])
    assert search.loss(search.found(["good"])) > search.loss(["good"])


def test_a_head_that_reads_nothing_is_robust(run: Path, corpus: str) -> None:
    """The control: without weights of the classifier no text and no trigger changes anything."""
    task = Robustness()
    plain: Any = task.open

    def silenced(scoring: RobustnessScoring) -> Any:
        found = plain(scoring)
        found.head.classifier.weight.data[:] = 0
        return found

    task.open = silenced  # type: ignore[method-assign]
    found = evaluate(task, RobustnessScoring(run=run, corpus=corpus, draws=2), show=False)
    assert all(value == 0 for name, value in found.items() if "drop" in name)


def test_what_cannot_be_tested_is_refused(run: Path, pretrained: Path, corpus: str, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="fine-tune it first: workbench finetune classify"):
        evaluate(Robustness(), RobustnessScoring(run=pretrained, corpus=corpus))
    with pytest.raises(WorkbenchError, match="others to test on"):
        evaluate(Robustness(), RobustnessScoring(run=run, corpus=corpus, limit=1))
    words = [f"{name}={word}" for name, word in zip(COLOURS, ("old", "new", "lost"), strict=True)]
    tuned = fine_tune(ClozeClassification(), tuning(pretrained, corpus, tmp_path / "cloze", word=words))
    with pytest.raises(WorkbenchError, match=r"classifies by the word of a pattern \(cloze\)"):
        evaluate(Robustness(), RobustnessScoring(run=tuned, corpus=corpus))

"""Probes by layer: what a linear probe can read, and what it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import prepare
from tests.evaluation.tasks.analysis_world import COLOURS, analysis_world, mixing_run, rows, words_by_layer
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis_options import LayersScoring
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.tasks.layers import LayerProbes


def contract_world(folder: Path) -> World:
    world = analysis_world(folder)
    return world._replace(options={"field": "tags", "train": world.corpus})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, rng = tmp_path_factory.mktemp("probes"), np.random.default_rng(0)
    of_verb = [{"text": row["text"], "tags": row["tags"][1:]} for row in rows()]
    guessed = [{**row, "tags": [[*row["tags"][0][:2], str(rng.integers(3))]]} for row in of_verb * 20]
    guessed = [{**row, "text": f"{row['text']} {n}"} for n, row in enumerate(guessed)]
    arcs = [{"text": row["text"], "dependencies": row["dependencies"]} for row in rows()]
    named = {"both": rows(), "verbs": of_verb, "guessed": guessed, "arcs": arcs, "plain": [{"text": "the house"}]}
    return {name: prepare(folder, name, of) for name, of in named.items()}


@pytest.fixture(scope="module")
def run(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixing_run(texts, tmp_path_factory.mktemp("mixing") / "run")


def scored(run: Path, corpus: str, **options: Any) -> Any:
    return evaluate(LayerProbes(), LayersScoring(run=run, corpus=corpus, **options), show=False)


def test_a_tag_of_the_context_is_in_the_layers_and_not_in_the_embedding(
    run: Path, corpora: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    found = scored(run, corpora["verbs"], train=corpora["verbs"], decay=1e-4)
    assert found["accuracy/layer_0"] == pytest.approx(1 / 3, abs=0.2)  # `is`, at one of four places
    assert found["accuracy/layer_2"] == 1
    assert found["control_accuracy/layer_2"] == 1  # one word, so one label at random
    assert found["selectivity/layer_2"] == 0
    assert found.baselines["label of the word"]["accuracy/layer_2"] == pytest.approx(1 / 3)
    assert found.counts == {
        "spans": 18, "training spans": 18, "labels": len(COLOURS), "texts in --train too": 18
    }  # fmt: skip
    assert "18 texts of corpus 'verbs' are in --train too" in caplog.text
    assert "texts in --train too" not in scored(run, corpora["verbs"], train=corpora["guessed"]).counts
    assert found.inputs["train"]["records"] == 18


def test_labels_at_random_are_not_read(run: Path, corpora: dict[str, str]) -> None:
    """The control that fails where test spans are among those for training."""
    found = scored(run, corpora["guessed"])
    assert found["accuracy/layer_2"] == pytest.approx(1 / 3, abs=0.15)
    assert found.counts["spans"] + found.counts["training spans"] == 360


def test_a_word_and_its_head_are_read_together(run: Path, corpora: dict[str, str]) -> None:
    found = scored(run, corpora["arcs"])
    assert found["accuracy/layer_0"] == 1  # the words alone say which relation it is
    assert {line["gold"] for line in found.predictions} == {"amod", "nsubj", "acomp"}
    assert found.variant == "dependencies, decay 0.001"


def test_the_numbers_are_those_of_an_independent_probe(run: Path, corpora: dict[str, str]) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    corpus = corpora["verbs"]
    found = scored(run, corpus, decay=0.01)
    states = words_by_layer(run, Corpus.open(corpus))
    tested = {line["key"] for line in found.predictions}
    gold = {str(s["key"]): s["tags"][0][2] for s in Corpus.open(corpus)}
    train = [key for key in gold if key not in tested]
    for layer in range(3):
        x, y = ([states[key, "is"][layer] for key in keys] for keys in (train, sorted(tested)))
        scale = StandardScaler().fit(x)
        probe = LogisticRegression(C=1 / (0.01 * len(x)), max_iter=2000, tol=1e-8)
        probe.fit(scale.transform(x), [gold[key] for key in train])
        said = dict(zip(sorted(tested), probe.predict(scale.transform(y)), strict=True))
        assert {line["key"]: line["layers"][layer] for line in found.predictions} == said


def test_what_cannot_be_probed_is_refused(run: Path, corpora: dict[str, str]) -> None:
    with pytest.raises(WorkbenchError, match=r"several labels of spans; choose one: --field tags"):
        scored(run, corpora["both"])
    with pytest.raises(WorkbenchError, match="has none of tags, marks, dependencies"):
        scored(run, corpora["plain"])
    with pytest.raises(WorkbenchError, match="has no texts with `marks`"):
        scored(run, corpora["both"], field="marks")
    with pytest.raises(WorkbenchError, match="at least two labels"):
        scored(run, corpora["verbs"], limit=1)

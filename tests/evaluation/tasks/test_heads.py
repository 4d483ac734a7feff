"""Heads that are left out: the gates, their gradients, and the score without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, network, prepare, recipe_tree
from tests.evaluation.tasks.analysis_world import COLOURS, mixing_run, rows
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import digest, normals
from workbench.evaluation.analysis_options import HeadsScoring
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring
from workbench.evaluation.tasks.classify import Classification
from workbench.evaluation.tasks.heads import HeadImportance, heads_alone
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain

LABELLED = [{"text": row["text"], "labels": {"colour": row["text"].split()[1]}} for row in rows()]
CLASSIFY = {"objective": "classify", "classes": list(COLOURS), "label": "colour", "dropout": 0.0}


def labelled_run(folder: Path, corpus: str, output: Path, steps: int = 1, **stream: Any) -> Path:
    model = {**network(16), "poolers": ["text"], "init_range": 0.3}
    model["layers"][0] |= {"num_heads": 4, "repeat": 2}
    model["streams"]["text"] |= stream
    tree = recipe_tree(folder, model, [CLASSIFY])
    tree["tasks"]["text"] |= {"corpora": [corpus]}
    tree["train"] |= {"max_steps": steps, "lr": 5e-3}
    return pretrain(recipe_from_dict(tree), output)


def contract_world(folder: Path) -> World:
    corpus = prepare(make_texts(folder), "labelled", LABELLED)
    return World(labelled_run(folder, corpus, folder / "run", 20), corpus, folder / "absent", {})


CASE = EvaluationCase(world=contract_world)


def scored(run: Path, corpus: str, task: Any = None, **options: Any) -> Any:
    return evaluate(task or HeadImportance(), HeadsScoring(run=run, corpus=corpus, **options), show=False)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(tmp_path_factory.mktemp("labelled"), "labelled", LABELLED)


def test_a_gate_leaves_out_what_the_output_reads_of_a_head(texts: Path, corpus: str, tmp_path: Path) -> None:
    run = labelled_run(texts, corpus, tmp_path / "run")
    gated, cut = (load(run).model.network() for _ in range(2))
    samples = [{**row, "key": str(n), "spans": [], "meta": {}, "draw": (n,)} for n, row in enumerate(LABELLED)]
    batch = collate(load(run).tasks["text"].sequences(samples))
    kept = [torch.tensor([0, 3]), torch.tensor([2])]
    for layer, of in zip(cut.layers, kept, strict=True):
        left = [head for head in range(4) if head not in of.tolist()]
        for head in left:
            layer.attention.attention.output.weight.data[:, head * 4 : head * 4 + 4] = 0  # type: ignore[union-attr]
    with heads_alone(gated, kept):
        torch.testing.assert_close(gated(batch)["text"], cut(batch)["text"])
    assert not torch.allclose(gated(batch)["text"], cut(batch)["text"])


def without_loss(task: Any, change: Any = lambda network: None) -> Any:
    """The task whose runs have no objective, as a folder of weights without a head, and with changed weights."""
    opened = task.open

    def changed(scoring: HeadsScoring) -> Any:
        found = opened(scoring)
        for each in found.loaded.tasks.values():
            each.objectives.clear()
        with torch.no_grad():
            change(found.network)
        return found

    task.open = changed
    return task


def test_a_network_without_a_task_is_ranked_by_the_gradients_of_gates(texts: Path, corpus: str, tmp_path: Path) -> None:
    run = mixing_run(texts, tmp_path / "run")
    found = scored(run, corpus, without_loss(HeadImportance()), limit=1)
    loaded = load(run)
    whole, sample = loaded.model.network(), {**LABELLED[0], "key": "", "draw": (0, 0)}
    (sequence,) = loaded.tasks["text"].sequences([sample])
    gates = [torch.ones(2, requires_grad=True) for _ in whole.layers]
    for layer, gate in zip(whole.layers, gates, strict=True):
        layer.attention.attention.output.register_forward_pre_hook(  # type: ignore[union-attr]
            lambda _, given, gate=gate: (given[0] * gate.repeat_interleave(8),)
        )
    direction = normals(np.array([digest(found.predictions[0]["key"]) % 2**32]), 16, "heads", "directions")
    with torch.enable_grad():
        (whole(collate([sequence]))["text"].mean(0) @ torch.from_numpy(direction[0])).backward()
    for gate, row in zip(gates, next(iter(found.examples[0].values())), strict=True):
        assert gate.grad is not None
        assert row == pytest.approx((gate.grad.abs() / gate.grad.norm()).tolist(), rel=1e-3, abs=1e-6)


def test_heads_without_effect_are_the_first_to_go(texts: Path, corpus: str, tmp_path: Path) -> None:
    """Only the second head of each layer moves anything; without random heads it is soon missing."""

    def silenced(network: Any) -> None:
        for layer in network.layers:
            layer.attention.attention.output.weight[:, :8] = 0

    run = mixing_run(texts, tmp_path / "run", layers=4)
    found = scored(run, corpus, without_loss(HeadImportance(), silenced))
    assert next(iter(found.examples[0].values())) == [[0.0, pytest.approx(1)]] * 4
    assert found["agreement/removed_37.5"] == pytest.approx(1)
    assert found["agreement/removed_50"] == pytest.approx(1)  # every layer keeps its best head
    assert found["random_agreement/removed_50"] < 0.999
    shares = {name.partition("removed_")[2] for name in found}
    assert shares == {"0", "25", "37.5", "50"}  # of eight heads; more than half would be as half
    assert found.variant == "agreement; ranked by the mean states of texts"


def test_the_score_is_that_of_the_run_s_own_task(texts: Path, corpus: str, tmp_path: Path) -> None:
    run = labelled_run(texts, corpus, tmp_path / "run", 30)
    found = scored(run, corpus, rank=corpus)
    own = evaluate(Classification(), ClassifyScoring(run=run, corpus=corpus), show=False)
    assert found["accuracy/removed_0"] == own["accuracy"] == 1
    assert found["random_accuracy/removed_75"] < 1
    assert found.counts == {"items": 18, "heads": 8}


def test_layers_without_heads_of_their_own_are_refused(texts: Path, corpus: str, tmp_path: Path) -> None:
    tree = recipe_tree(texts, network(8), [{"objective": "mlm"}])
    tree["model"]["layers"][0] |= {"repeat": 2, "share": "all"}
    shared = pretrain(recipe_from_dict(tree), tmp_path / "shared")
    with pytest.raises(WorkbenchError, match="whose weights no other layer shares"):
        scored(shared, corpus)

"""`prune`: a smaller run whose outputs are those of the old one without the removed parts, and what it can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.evaluation.conftest import network, prepare, recipe_tree
from workbench.cli.export import export
from workbench.cli.prune import prune
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import command
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis import removal
from workbench.evaluation.analysis.removal import Importance, importances, kept_parts
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain

ROWS = [{"text": f"the red house is number {n}", "labels": {"hour": "ab"[n % 2]}} for n in range(12)]
HOUR = {"objective": "classify", "classes": ["a", "b"], "label": "hour", "dropout": 0.0}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(tmp_path_factory.mktemp("labelled"), "labelled", ROWS)


@pytest.fixture(scope="module")
def run(texts: Path, corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = network(16)
    base["layers"][0] |= {"num_heads": 4, "intermediate_size": 10, "repeat": 2}
    tree = recipe_tree(texts, {**base, "poolers": ["text"], "init_range": 0.3}, [HOUR])
    tree["tasks"]["text"]["corpora"] = [corpus]
    return pretrain(recipe_from_dict(tree), tmp_path_factory.mktemp("run") / "whole")


def smaller(run: Path, corpus: str, output: Path, **options: Any) -> Path:
    command(prune)(run=str(run), corpus=corpus, output=output, **options)
    return output


def logits(run: Path, mask: Any = None) -> torch.Tensor:
    loaded = load(run)
    if mask is not None:
        mask(loaded.model.network())
    samples = [{**row, "key": str(n), "spans": [], "meta": {}, "draw": (n,)} for n, row in enumerate(ROWS)]
    batch = collate(loaded.tasks["text"].sequences(samples))
    network = loaded.model.network()
    return loaded.model.heads["classify"].classifier(network.pool(network(batch), batch))  # type: ignore[operator,union-attr]


def test_the_smaller_run_is_the_old_one_without_what_matters_least(run: Path, corpus: str, tmp_path: Path) -> None:
    made = smaller(run, corpus, tmp_path / "made", heads=0.5, rows=0.3)
    loaded, new = load(run), load(made).model.network()
    found = importances(loaded.model, loaded.model.network(), loaded.tasks["text"], Corpus.open(corpus), None)
    assert sum(layer.attention.attention.num_heads for layer in new.layers) == 4  # type: ignore[union-attr,misc]
    assert {layer.feed_forward.network.outer.in_features for layer in new.layers} == {7}  # type: ignore[union-attr]

    def masked(whole: Any) -> None:
        for one, layer, small in zip(found, whole.layers, new.layers, strict=True):
            count = small.attention.attention.num_heads  # type: ignore[union-attr]
            for head in one.heads.argsort()[: 4 - count].tolist():
                layer.attention.attention.output.weight.data[:, head * 4 : head * 4 + 4] = 0
            layer.feed_forward.network.outer.weight.data[:, one.features.argsort()[:3]] = 0

    torch.testing.assert_close(logits(made), logits(run, masked))
    assert not torch.allclose(logits(made), logits(run))


def test_importance_is_the_change_of_the_loss_that_a_gate_makes(run: Path, corpus: str) -> None:
    """Of one sequence: |dL/dg| of a factor g of the head's output."""
    loaded = load(run)
    whole, task = loaded.model.network(), loaded.tasks["text"]
    one = importances(loaded.model, whole, task, Corpus.open(corpus), 1)[1]
    sample = {**next(iter(Corpus.open(corpus))), "draw": (0, 0)}
    micro, gates = task.micro_batch([sample], (0, 0, 0)), torch.ones(4, requires_grad=True)
    output: Any = whole.layers[1].attention.attention.output  # type: ignore[union-attr]
    output.register_forward_pre_hook(lambda _, given: (given[0] * gates.repeat_interleave(4),))
    with torch.enable_grad():
        loaded.model(micro, task.names)["classify"].loss.backward()  # type: ignore[union-attr]
    assert gates.grad is not None
    torch.testing.assert_close(one.heads, gates.grad.abs(), rtol=1e-4, atol=1e-7)


def test_of_equal_heads_only_as_many_are_removed() -> None:
    found = [Importance(torch.tensor([3.0, 0, 0, 0]), torch.ones(4)) for _ in range(2)]
    kept = [heads.tolist() for heads, _ in kept_parts(found, 0.5, 0.0)]
    assert kept == [[0, 1, 2], [0]]


def test_it_is_a_run_like_any_other(run: Path, corpus: str, tmp_path: Path) -> None:
    made = smaller(run, corpus, tmp_path / "made", rows=0.5)
    assert evaluate(Classification(), ClassifyScoring(run=made, corpus=corpus)).numbers
    tuned = fine_tune(
        Classification(),
        ClassifyTuning(run=made, corpus=corpus, label="hour", output=str(tmp_path / "tuned"), epochs=1.0, batch_size=8),
    )
    assert load(tuned).recipe.networks["main"].layers[0]["intermediate_size"] == 5
    export(made, tmp_path / "bert", "bert")
    assert (tmp_path / "bert" / "model.safetensors").exists()
    fewer = smaller(run, corpus, tmp_path / "fewer", heads=0.5)
    with pytest.raises(WorkbenchError, match="inner_size"):
        export(fewer, tmp_path / "none", "bert")
    assert pretrain(load(made).recipe, made) == made  # it has taken its steps


def test_a_full_disk_leaves_nothing(run: Path, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(removal.Checkpoints, "start", full)
        with pytest.raises(OSError, match="No space"):
            smaller(run, corpus, tmp_path / "made", heads=0.5)
    assert not (tmp_path / "made").exists()
    smaller(run, corpus, tmp_path / "made", heads=0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_what_cannot_be_removed_is_refused(run: Path, corpus: str, texts: Path, tmp_path: Path) -> None:
    for options, words in (
        ({}, "nothing is to be removed"),
        ({"heads": 0.5, "network": "typo"}, "unknown network 'typo'"),
        ({"heads": 0.5, "task": "typo"}, "unknown task 'typo'"),
        ({"heads": 1.0}, "allowed: a number from 0, below 1"),
    ):
        with pytest.raises(WorkbenchError, match=words):
            smaller(run, corpus, tmp_path / "none", **options)
    with pytest.raises(WorkbenchError, match="exists; choose a new folder"):
        smaller(run, corpus, tmp_path, heads=0.5)
    made = smaller(run, corpus, tmp_path / "made", heads=0.5)
    written = (made / "data.json").read_bytes()
    smaller(run, corpus, made, heads=0.5)  # as a chain calls it again that was killed before it noted the end
    assert (made / "data.json").read_bytes() == written
    with pytest.raises(WorkbenchError, match="exists; choose a new folder"):
        smaller(run, corpus, made, rows=0.5)
    tree = recipe_tree(texts, {**network(8), "poolers": ["text"]}, [{"objective": "mlm"}])
    tree["model"]["layers"][0] |= {"repeat": 2, "share": "all"}
    shared = pretrain(recipe_from_dict(tree), tmp_path / "shared")
    with pytest.raises(WorkbenchError, match="cannot be made smaller"):
        smaller(shared, corpus, tmp_path / "none", heads=0.5)

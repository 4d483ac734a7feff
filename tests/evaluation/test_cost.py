"""What networks cost: counts by hand, kinds of places, messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from tests.evaluation.conftest import network
from workbench.cli.cost import cost
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import call_from_python
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.cost import costs, first_numbers
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain

WIDTH = 16


@pytest.fixture(scope="module")
def runs(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run of one layer, and one of two."""
    folder = tmp_path_factory.mktemp("cost")
    made = []
    for layers in (1, 2):
        model = network(WIDTH)
        model["layers"] *= layers
        task = {
            "corpora": [str(texts / "texts")],
            "sequence": {"builder": "document", "max_length": 24},
            "objectives": [{"objective": "mlm"}],
        }
        train = {"max_steps": 1, "global_batch_size": 4, "micro_batch_size": 4, "lr": 1e-3, "num_workers": 0}
        tree = {"tokenizer": str(texts / "tokenizer.json"), "model": model, "tasks": {"text": task}, "train": train}
        made.append(pretrain(recipe_from_dict(tree), folder / f"layers-{layers}"))
    return made


def test_operations_and_parameters_are_those_counted_by_hand(runs: list[Path]) -> None:
    found = costs(runs, lengths=[8, 20], batches=[1, 3], rounds=2)
    one, two = found
    assert [(each.length, each.batch) for each in one.passes] == [(8, 1), (8, 3), (20, 1), (20, 3)]
    assert two.in_layers == pytest.approx(2 * one.in_layers, rel=0.05)
    assert two.disk > one.disk > 4 * one.parameters
    matrices = 4 * WIDTH * WIDTH + 2 * WIDTH * 4 * WIDTH  # q, k, v and output; the feed-forward layer
    for each, layers in ((one, 1), (two, 2)):
        for passed in each.passes:
            attention = 2 * 2 * int(passed.length) ** 2 * WIDTH  # scores, and the mean of the values
            assert passed.operations == layers * (2 * int(passed.length) * matrices + attention), passed
            assert passed.slow >= passed.milliseconds > 0
            assert passed.per_second == pytest.approx(1000 * passed.batch / passed.milliseconds)


def test_a_corpus_is_read_as_by_the_task(runs: list[Path], texts: Path) -> None:
    (found,) = costs(runs[:1], corpus=Corpus.open(texts / "texts"), batches=[2], rounds=1)
    assert [each.length for each in found.passes] == ["as read"]
    assert found.passes[0].operations > 0


def test_the_command_prints_tables_and_writes_what_it_measured(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs[0] / "evaluations"
    folder.mkdir(exist_ok=True)
    call_from_python(cost, runs=[str(run) for run in runs], length=[8], batch=[1], rounds=1, output=tmp_path / "c.json")
    printed = capsys.readouterr().out
    assert "layers-1" in printed
    assert "layers-2" in printed
    written: list[dict[str, Any]] = json.loads((tmp_path / "c.json").read_text())
    assert [each["place"] for each in written] == ["layers-1", "layers-2"]
    assert [len(each["passes"]) for each in written] == [1, 1]
    assert written[0]["parameters"] == sum(each.numel() for each in workbench.load(runs[0]).torch.networks.parameters())


def test_results_are_distinguished_by_corpus_options_and_control(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exported = tmp_path / "there" / "out"
    for place in (runs[1] / "evaluations", tmp_path / "evaluations" / "out"):
        place.mkdir(parents=True, exist_ok=True)
        rows = [("a", None, {}, exported), ("b", None, {}, exported), ("b", None, {"limit": 9}, exported)]
        rows += [("a", "shuffled", {}, exported), ("c", None, {}, tmp_path / "here" / "out")]
        for number, (corpus, control, options, of) in enumerate(rows):
            inputs = {"checkpoint": str(of), "corpus": {"path": f"corpora/{corpus}"}}
            written = {"task": "classify", "numbers": {"accuracy": number / 10, "f1": 0.0}, "counts": {"texts": 1}}
            written |= {"control": control, "options": options, "inputs": inputs}
            (place / f"{number}.json").write_text(json.dumps(written))
    wanted = {"a": 0.0, "b": 0.1, "b (limit=9)": 0.2}
    assert first_numbers(exported) == {f"classify/accuracy on {name}": value for name, value in wanted.items()}
    assert [*first_numbers(runs[1]).values()] == [0.0, 0.1, 0.2, 0.4]


def test_what_cannot_be_measured_is_named(runs: list[Path]) -> None:
    with pytest.raises(WorkbenchError, match=r"has 40 positions; allowed: --length of at most 40"):
        costs(runs[:1], lengths=[41], batches=[1], rounds=1)
    refused: dict[str, Callable[[], Any]] = {
        "nowhere is not a run": lambda: call_from_python(cost, runs=["nowhere"]),
        "rounds": lambda: call_from_python(cost, runs=[str(runs[0])], rounds=0),
    }
    for message, call in refused.items():
        with pytest.raises(WorkbenchError, match=message):
            call()
    assert torch.is_grad_enabled()

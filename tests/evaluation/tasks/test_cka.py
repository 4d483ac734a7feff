"""CKA of networks: the same network, a rotated one, another one, and words that don't belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import prepare
from tests.evaluation.tasks.analysis_world import analysis_world, mixing_run, rows
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis_options import CkaScoring
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.tasks.cka import Cka


def contract_world(folder: Path) -> World:
    world = analysis_world(folder)
    return world._replace(options={"other": mixing_run(folder, folder / "other", seed=1)})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(tmp_path_factory.mktemp("words"), "tagged", rows())


def scored(run: Path, other: Path, corpus: str, **options: Any) -> Any:
    return evaluate(Cka(), CkaScoring(run=run, corpus=corpus, other=other, **options), show=False)


def test_a_network_is_like_itself_and_less_like_another(texts: Path, corpus: str, tmp_path: Path) -> None:
    run, deep = (mixing_run(texts, tmp_path / str(n), layers=n, seed=n) for n in (2, 4))
    same = scored(run, run, corpus)
    assert all(value == pytest.approx(1) for value in same.values())
    found = scored(run, deep, corpus)
    assert list(found) == [f"cka/layer_{n}" for n in range(3)]
    assert all(0.1 < value < 0.95 for value in found.values())
    table = found.examples[0]["cka"]
    assert [len(table), len(table[0])] == [3, 5]
    assert [table[n][2 * n] for n in range(3)] == pytest.approx(list(found.values()))
    apart = found.baselines["words in another order"]
    assert all(apart[name] < value for name, value in found.items())
    assert found.inputs["other"] != found.inputs["checkpoint"]
    one = scored(run, run, corpus, words=40)
    assert one.counts["words"] == 40


def test_what_cannot_be_compared_is_refused(texts: Path, two_networks: Path, corpus: str, tmp_path: Path) -> None:
    run = mixing_run(texts, tmp_path / "run")
    with pytest.raises(WorkbenchError, match="networks"):
        scored(run, two_networks, corpus)
    assert scored(run, two_networks, corpus, other_network="large").inputs["other network"] == "large"
    with pytest.raises(WorkbenchError, match="at least 3 are needed"):
        scored(run, run, corpus, words=2)

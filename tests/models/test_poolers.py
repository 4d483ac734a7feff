"""The poolers: each by hand on jagged sequences, their layers, their places in a recipe, and heads that read them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.contracts.cases import PoolerCase
from tests.models.conftest import stream
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.objectives._vectors import pool_rows
from workbench.objectives.classify import Classify
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch

CASES = {
    "summary": PoolerCase(),
    "first": PoolerCase({"norm_eps": 1e-5}),
    "last": PoolerCase({"dense": False, "activation": None}),
    "mean": PoolerCase({"size": 5, "bias": False}),
    "max": PoolerCase({"activation": "relu"}),
    "final_state": PoolerCase({"size": 4}),
    "concat": {"": PoolerCase(), "plain": PoolerCase({"dense": False, "activation": None})},
    "attention": PoolerCase({"inner_size": 3}),
}

LENGTHS = [3, 1, 5]
PLAIN = {"dense": False, "activation": None}
TEXT = {"embedding": "token", "hidden_size": 6, "max_positions": 16, "norm": None}
LAYER = {"layer": "self", "stream": "text", "num_heads": 2}


def network(pooler: Any) -> Network:
    torch.manual_seed(0)
    spec = NetworkSpec({"text": TEXT}, [LAYER], poolers=[{"stream": "text", **pooler}], init_range=0.5)
    return Network(spec, vocab_size=9).eval()


def by_hand(name: str, rows: torch.Tensor, pooler: Any) -> torch.Tensor:
    """One sequence."""
    if name == "attention":
        scores = [
            (pooler.score.weight[0] * torch.tanh(pooler.inner.weight @ row + pooler.inner.bias)).sum() for row in rows
        ]
        shares = torch.stack(scores).exp() / sum(score.exp() for score in scores)
        return sum(share * row for share, row in zip(shares, rows, strict=True))
    found = {
        "first": rows[0],
        "summary": rows[0],
        "last": rows[-1],
        "final_state": torch.tensor([*rows[-1, :3].tolist(), *rows[0, 3:].tolist()]),
        "mean": sum(rows) / len(rows),
        "max": torch.tensor([max(column) for column in rows.T.tolist()]),
    }
    return found[name] if name != "concat" else torch.cat([found["last"], found["max"], found["mean"]])


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_those_of_the_formula(name: str) -> None:
    made = network({"pooler": name, **PLAIN})
    batch = Batch({"text": stream(LENGTHS)})
    rows = torch.randn(sum(LENGTHS), 6)
    found = made.pool({"text": rows}, batch)
    wanted = torch.stack([by_hand(name, each, made.poolers["text"]) for each in rows.split(LENGTHS)])
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-6)
    assert found.shape == (3, made.pooled_size("text"))


@pytest.mark.parametrize("name", ["first", "last", "summary", "concat", "final_state"])
def test_the_vector_of_no_rows_is_0(name: str) -> None:
    made, lengths = network({"pooler": name, **PLAIN}), [0, 3, 0, 2, 0]
    rows = torch.randn(5, 6)
    found = made.pool({"text": rows}, Batch({"text": stream(lengths, rank=torch.zeros(5).long())}))
    alone = made.pool({"text": rows}, Batch({"text": stream([3, 2], rank=torch.zeros(5).long())}))
    assert torch.equal(found[[1, 3]], alone)
    assert not found[[0, 2, 4]].any()
    assert not made.pool({"text": rows[:0]}, Batch({"text": stream([0], rank=torch.zeros(0).long())})).any()


@pytest.mark.parametrize("pool", ["first", "last", "mean"])
def test_a_pooled_row_of_no_rows_is_0(pool: Any) -> None:
    rows, batch = torch.randn(5, 6), Batch({"text": stream([0, 3, 2, 0])})
    found = pool_rows(rows, batch, "text", pool)
    assert not found[[0, 3]].any()
    assert torch.equal(found[1:3], pool_rows(rows, Batch({"text": stream([3, 2])}), "text", pool))
    assert torch.equal(pool_rows(rows, batch, "text", pool, [3, 1]), found[[3, 1]])


def test_the_summary_of_a_causal_text_is_its_last_row() -> None:
    batch = Batch({"text": stream([3, 2], rank=torch.tensor([0, 1, 2, 0, 1]))})
    rows = torch.randn(5, 6)
    assert torch.equal(network({"pooler": "summary", **PLAIN}).pool({"text": rows}, batch), rows[[2, 4]])


def test_layers_follow_the_vector_and_a_head_reads_their_width() -> None:
    made = network({"pooler": "concat", "size": 4, "activation": "relu", "norm_eps": 1e-5})
    pooler: Any = made.poolers["text"]
    batch, rows = Batch({"text": stream(LENGTHS)}), torch.randn(9, 6)
    vectors = torch.stack([by_hand("concat", each, pooler) for each in rows.split(LENGTHS)])
    wanted = torch.nn.functional.layer_norm((vectors @ pooler.dense.weight.T + pooler.dense.bias).relu(), (4,))
    torch.testing.assert_close(made.pool({"text": rows}, batch), wanted, atol=1e-5, rtol=1e-5)
    objective = Classify(["a", "b"])
    objective.name = "classify"
    assert objective.head(made).classifier.in_features == 4  # type: ignore[union-attr]


def test_forms_of_a_recipe_describe_the_same() -> None:
    forms: list[Any] = [["text"], [{"stream": "text"}], {"text": {}}, [{"stream": "text", "pooler": "summary"}]]
    assert all(NetworkSpec({}, [], poolers=form).pooler_options == {"text": {"pooler": "summary"}} for form in forms)
    assert NetworkSpec({}, []).with_poolers({"text": {"pooler": "summary"}}).poolers == ["text"]


@pytest.mark.parametrize(
    ("poolers", "said"),
    [
        ([{"pooler": "mean"}], r"model.poolers\[0\]: stream = None; allowed: the name of a stream"),
        (["text", {"stream": "text", "pooler": "mean"}], r"model.poolers\[1\]: stream = 'text'"),
        ([{"stream": "text", "pooler": "median"}], r"model.poolers.text: unknown pooler 'median'"),
        ({"text": {"rows": "mean"}}, r"unknown option 'rows'"),
    ],
)
def test_wrong_poolers_are_refused(poolers: Any, said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        Network(NetworkSpec({"text": TEXT}, [LAYER], poolers=poolers), vocab_size=9)

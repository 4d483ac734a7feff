"""`train.compile`: compiled layers compute the same as uncompiled ones, and ragged batches compile nothing anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from workbench.models.compilation import uncompiled
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, Stream

pytestmark = pytest.mark.slow

QUIET = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0, "repeat": 2}
STACKS: dict[str, list[dict[str, Any]]] = {
    "self": [{"layer": "self", "stream": "text", **QUIET}],
    "pre, rotary, window": [
        {"layer": "self", "stream": "text", "norm_place": "pre", "rotary": 10000.0, "window": 3, **QUIET}
    ],
    "buckets": [{"layer": "self", "stream": "text", "score_bias": "buckets", **QUIET}],
    "joint": [{"layer": "joint", "streams": ["text", "image"], **QUIET}],
    "cross": [{"layer": "cross", "stream": "text", "to": "image", **QUIET}],
    "co": [{"layer": "co", "streams": ["text", "image"], **QUIET}],
}
BATCHES = 12


def network(name: str) -> Network:
    torch.manual_seed(0)
    embedding = {"embedding": "token", "vocab_size": 50, "hidden_size": 32, "dropout": 0.0, "token_types": 0}
    return Network(NetworkSpec({"text": embedding, "image": embedding}, STACKS[name], init_range=0.3))


def batch(rng: np.random.Generator) -> Batch:
    count = int(rng.integers(2, 5))
    streams = {}
    for name in ("text", "image"):
        sizes = [int(n) for n in rng.integers(1, 9, count)]
        places = torch.cat([torch.arange(n) for n in sizes])
        fields = {"input_ids": torch.from_numpy(rng.integers(0, 50, sum(sizes))), "position_ids": places}
        if name == "text":
            fields["rank"] = places.clone()
        streams[name] = Stream(fields, torch.tensor([0, *sizes]).cumsum(0), sizes)
    return Batch(streams)


def reported(network: Network, batch: Batch) -> list[Tensor]:
    """The states and the gradients of all weights."""
    states = network(batch)
    loss = sum(rows.square().sum() for rows in states.values())
    assert isinstance(loss, Tensor)
    gradients = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    return [*states.values(), *(g for g in gradients if g is not None)]


@pytest.mark.parametrize("name", STACKS)
def test_compiled_layers_say_the_same_of_ragged_batches(name: str) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    plain, compiled = network(name), network(name)
    for layer in compiled.layers:
        layer.compile(dynamic=True, backend="eager")
    rng, graphs = np.random.default_rng(0), []
    for _ in range(BATCHES):
        given = batch(rng)
        counters.clear()
        torch.testing.assert_close(reported(compiled, given), reported(plain, given), atol=1e-5, rtol=1e-5)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] > 0
    assert sum(graphs[2:]) == 0, graphs


def test_an_uncompiled_function_and_those_that_it_calls_are_in_no_graph() -> None:
    operations: list[str] = []

    def noting(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        operations.extend(str(node.target) for node in graph.graph.nodes if node.op.startswith("call"))
        return graph.forward

    def called(rows: Tensor) -> Tensor:
        return rows.sin()

    outside = uncompiled(lambda rows: called(rows) + 1)
    compiled = torch.compile(lambda rows: outside(rows.cos()).tan(), backend=noting)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), (torch.ones(3).cos().sin() + 1).tan())
    assert operations == ["cos", "tan"]


@pytest.mark.slow
def test_inductor_says_the_same() -> None:
    """Sums in another order: of 1,600 gradients one differs by 4e-4 of its size."""
    plain, compiled = network("pre, rotary, window"), network("pre, rotary, window")
    for layer in compiled.layers:
        layer.compile(dynamic=True)
    rng = np.random.default_rng(0)
    for _ in range(3):
        given = batch(rng)
        torch.testing.assert_close(reported(compiled, given), reported(plain, given), atol=2e-3, rtol=2e-3)

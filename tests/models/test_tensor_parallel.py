"""Tensor parallelism: every layer and adapter on two ranks, and on two by two with `fully_shard`, equals one rank.

The ranks run in processes of their own (`tests.models.tensor_ranks`), all cases in one start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.case_finder import cases_of
from tests.models.adapters.adapter_runs import network
from tests.models.tensor_ranks import ADAPTERS, SHARES, run_rank
from tests.training.command_processes import SERVER
from workbench.core.errors import WorkbenchError
from workbench.models import adapters, dropout
from workbench.models.attention.score_bias import ScoreBias
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.feed_forward import FeedForward
from workbench.models.tensor_cut import CutDim, CutModule, HeadRange
from workbench.parallel.tensor_parallel import check_tensors

LIMIT = 240.0
CLOSE = 3e-6
RANKS = [
    pytest.param((1, True), id="few"),
    pytest.param((1, False), id="all", marks=pytest.mark.scale),
    pytest.param((2, False), id="divided further", marks=pytest.mark.scale),
]
"""Numbers of data ranks, and whether few of the options are tried."""


class Found(NamedTuple):
    """The differences of all cases on so many data ranks x 2 tensor ranks, from every rank."""

    data: int
    cases: dict[str, Any]


@pytest.fixture(scope="module", params=RANKS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    data, few = request.param
    return Found(data, _run(tmp_path_factory.mktemp("ranks"), data, few))


def _run(folder: Path, data: int, few: bool) -> dict[str, Any]:
    ranks = [SERVER.Process(target=run_rank, args=(folder, rank, data, 2, few)) for rank in range(2 * data)]
    for rank in ranks:
        rank.start()
    try:
        deadline = time.monotonic() + LIMIT
        for rank in ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
    finally:
        for rank in ranks:
            rank.kill()
    every = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    assert len(every) == len(ranks), f"{len(every)} of {len(ranks)} ranks ended within {LIMIT} seconds"
    return {name: [of_rank[name] for of_rank in every] for name in every[0]}


def check(found: Found, prefix: str) -> None:
    """Check that the cases with a prefix are there, on several data ranks those that are divided further, and that all
    differences are small."""
    cases = {name: of_ranks for name, of_ranks in found.cases.items() if name.startswith(prefix)}
    assert cases or found.data > 1, prefix
    for name, of_ranks in cases.items():
        for result in of_ranks:
            assert isinstance(result, dict), f"{name}: {result}"
            far = {what: number for what, number in result.items() if not number <= CLOSE}
            assert not far, f"{name}: {far}"


@pytest.mark.parametrize("layer", cases_of("layer"))
def test_a_layer_equals_one_rank(layer: str, found: Found) -> None:
    """The loss, all states and attention weights, each gradient, and the parameters as checkpoints read them."""
    check(found, f"layer {layer} + ")


def test_most_layers_are_cut(found: Found) -> None:
    """Those that attend, at least."""
    for name, (_, case) in cases_of("layer").items():
        for result in found.cases.get(f"layer {name} + ", [])[:1]:
            assert any(what.startswith("cut ") for what in result) == ("attention" not in case.excused), name


@pytest.mark.parametrize("name", [*(f"adapter {name}" for name in ADAPTERS), *(f"share {name}" for name in SHARES)])
def test_a_network_equals_one_rank(name: str, found: Found) -> None:
    check(found, name)


def test_enough_cases_are_there(found: Found) -> None:
    """Also of those that `fully_shard` divides further."""
    assert {"layer self + dropout", "layer self + relative", "adapter prefix", "share all"} <= found.cases.keys()


def test_a_checkpoint_has_the_order_of_one_rank(found: Found) -> None:
    """Weights and moments of all parameters, those that are not cut once; and what is restored is what was saved."""
    assert "stored" in found.cases
    check(found, "stored")


def test_a_cache_is_read_as_on_one_rank(found: Found) -> None:
    check(found, "memory")


def test_a_layer_that_goes_past_the_entry_of_a_block_is_refused(found: Found) -> None:
    assert all("mixed torch.Tensor and DTensor" in result for result in found.cases.get("outside", []))


@pytest.mark.parametrize("cut", [CutDim(0), CutDim(0, 3), CutDim(1, 2)])
def test_parts_make_the_whole(cut: CutDim) -> None:
    whole = torch.arange(12 * 8).view(12, 8)
    parts = torch.cat([cut.part(whole, rank, 2) for rank in range(2)], cut.dim)
    assert torch.equal(cut.joined(parts, 2), whole)


def attention(**options: Any) -> MultiHeadAttention:
    return MultiHeadAttention(12, LayerOptions(**{"num_heads": 6, **options}))


def test_heads_that_ranks_do_not_divide_are_refused() -> None:
    both = nn.ModuleDict({"attention": attention(), "network": FeedForward(12, 18)})
    check_tensors(both, 3)
    with pytest.raises(WorkbenchError, match=r"does not divide num_heads = 6 of attention .*; allowed .*: 1, 2, 3, 6"):
        check_tensors(both, 4)
    with pytest.raises(WorkbenchError, match=r"intermediate_size = 9 of network .*allowed for this model: 1, 3"):
        check_tensors(nn.ModuleDict({**both, "network": FeedForward(12, 9, "swiglu")}), 2)


class GatedHeads(MultiHeadAttention):
    def __init__(self) -> None:
        super().__init__(12, LayerOptions(num_heads=6))
        self.gate = nn.Parameter(torch.ones(6))


class SlopeBias(ScoreBias):
    pass


class TwiceAdapter(adapters.Adapter):
    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return outputs + outputs


def adapted() -> nn.Module:
    made = network()
    made.layers[0].attention.attention.qkv.register_forward_hook(TwiceAdapter().act)
    return made


def tied() -> nn.Module:
    block, own = FeedForward(8, 8), nn.Linear(8, 8)
    own.weight = block.inner.weight
    return nn.ModuleDict({"block": block, "own": own})


def biased() -> nn.Module:
    block = attention()
    block.score_bias = SlopeBias()
    return block


def stored() -> nn.Module:
    block = biased()
    block.score_bias.heads_in = {"slopes": 0}
    block.score_bias.register_buffer("slopes", torch.ones(6))
    return block


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (GatedHeads, "GatedHeads.* has the parameter gate, and its tensor_cuts does not state"),
        (biased, "the score bias SlopeBias has no `heads_in`"),
        (stored, "the buffer slopes of score_bias .* persistent=False"),
        (adapted, "the adapter TwiceAdapter .*`cuts_at`.*train.parallel.tensor: 1"),
        (tied, r"block.inner.weight and own.weight are one parameter"),
    ],
)
def test_a_module_that_cannot_be_cut_is_named(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        check_tensors(make(), 2)


def test_the_hooks_of_blocks_are_nothing_on_one_rank() -> None:
    block, rows = CutModule(), torch.ones(2)
    assert block.entered(rows) is rows
    assert block.of_all_ranks(rows) is rows


def test_a_device_draws_other_numbers_for_other_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends where it would have ended. The device keeps a seed and a place in its stream, as CUDA's does."""
    state = torch.tensor([5, 100])

    def write(new: Tensor, device: torch.device) -> None:
        state.copy_(new.view(torch.int64))

    device = SimpleNamespace(get_rng_state=lambda device: state.clone().view(torch.uint8), set_rng_state=write)
    monkeypatch.setattr(torch, "get_device_module", lambda device: device_of[device.type])
    device_of = {"cuda": device}
    begins = []
    for first in (0, 2):
        with dropout.numbers_of_heads(torch.device("cuda"), HeadRange(first, 2, 4)):
            begins.append(int(state[1]))
            state[1] += 12
    assert begins == [100, 112 + (2 << 40)]
    assert state.tolist() == [5, 124]


def test_messages_have_the_heads_of_the_model() -> None:
    attention = MultiHeadAttention(8, LayerOptions(num_heads=4, intermediate_size=8))
    names = (("text",), ("text",))
    assert attention._label("self", names) == "self(text), 4 heads"
    attention.take_part(1, 2)
    assert attention._label("self", names) == "self(text), 4 heads (2 on each rank)"

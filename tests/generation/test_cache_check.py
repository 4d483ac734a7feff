"""A layer that mixes rows next to attention: refused where it has no cache, and let through where it recalls the
rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.docs.test_blocks import example
from workbench.core.errors import WorkbenchError
from workbench.generation.decoder import check_cache
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.layers.lstm import LstmLayer
from workbench.sequences.batch import Batch, Stream, collate

CAUSAL = {"builder": "document", "begin": "cls", "visibility": "causal"}
PREFIX = {"builder": "sentence_pair", "visibility": "prefix"}
pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def no_gradients() -> Any:
    with torch.no_grad():
        yield


def shift() -> nn.Module:
    """The layer of docs/extending/layer-cache.md."""
    found: dict[str, Any] = {"__name__": "shift"}
    exec(example("shift.py"), found)
    layer: nn.Module = found["ShiftLayer"]("text", {"text": 32})
    return layer


class Alone(nn.Module):
    """The same of the rows of the batch, as if there were no others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = shift()

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        rows: dict[str, Tensor] = self.layer(hidden, Context(context.batch))
        return rows


@pytest.mark.parametrize("builder", [CAUSAL, PREFIX])
@pytest.mark.parametrize("options", [{}, {"rotary": 10000.0, "norm_place": "pre"}])
def test_our_own_layers_have_a_kv_cache(builder: dict, options: dict, setting: Any) -> None:
    network, head, continuation, prompts = setting(builder, **options)
    for prompt in prompts:
        check_cache(network, head, continuation, collate([prompt]))


@pytest.mark.parametrize("place", [0, 2])
def test_a_layer_without_a_kv_cache_is_refused(place: int, setting: Any) -> None:
    network, head, continuation, prompts = setting(CAUSAL)
    network.layers.insert(place, Alone())
    with pytest.raises(WorkbenchError, match=r"mixes rows by other means than attention.*Context\.recall"):
        check_cache(network, head, continuation, collate([prompts[1]]))


@pytest.mark.parametrize("place", [0, 2])
def test_a_layer_that_recalls_rows_reads_on(place: int, setting: Any) -> None:
    network, head, continuation, prompts = setting(CAUSAL)
    network.layers.insert(place, shift())
    check_cache(network, head, continuation, collate([prompts[1]]))


@pytest.mark.parametrize("place", [0, 2])
def test_a_recurrent_layer_reads_on_from_its_state(place: int, setting: Any) -> None:
    network, head, continuation, prompts = setting(CAUSAL)
    network.layers.insert(place, LstmLayer("text", {"text": 32}, depth=2, intermediate_size=24).eval())
    check_cache(network, head, continuation, collate([prompts[1]]))


@pytest.mark.parametrize("keeps", ["keys", "rows"])
def test_the_layer_of_the_page_reads_pieces_as_the_whole(keeps: Any) -> None:
    """Of sequences side by side, the pieces of which are of several lengths and may be empty."""
    layer, states = shift(), torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    expected = layer({"text": states}, Context(text_of([3, 5])))["text"]
    cache = KVCache(keeps)
    for rows, lengths in (([0, 3, 4], [1, 2]), ([1, 2], [2, 0]), ([5, 6, 7], [0, 3])):
        context = Context(text_of(lengths), cache=cache)
        found = layer({"text": states[rows]}, context)["text"]
        torch.testing.assert_close(found, expected[rows], atol=1e-5, rtol=1e-5)
        cache = context.updated_cache


def text_of(lengths: list[int]) -> Batch:
    return Batch({"text": Stream({}, torch.tensor([0, *lengths]).cumsum(0), lengths)})

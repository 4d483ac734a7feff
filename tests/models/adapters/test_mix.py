"""A mix of the layers: the formula of ELMo, and a run that trains one on another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.contracts.cases import AdapterCase
from tests.models.adapters.adapter_runs import batch, check_trained_alone, network
from tests.training.conftest import make_recipe, world_folder  # noqa: F401 - fixtures
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context

MIX = {"adapter": "mix", "stream": "text"}
CASE = AdapterCase({}, {"begins": "a fresh mix is the mean", "merge": "it reads all layers"})


@torch.no_grad()
def test_the_output_is_the_weighted_sum_of_all_layers() -> None:
    plain, mixed = network(), network([MIX])
    context = Context(batch(), keep_hidden=True)
    plain(batch(), context)
    hidden = [states["text"] for states in context.hidden]
    torch.testing.assert_close(mixed(batch())["text"], torch.stack(hidden).mean(0))
    mix = mixed.adapters[0]["end"]  # type: ignore[index]
    mix.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
    mix.factor.fill_(3.0)
    shares = torch.tensor([0.5, -1.0, 2.0]).exp()
    shares /= shares.sum()
    torch.testing.assert_close(mixed(batch())["text"], 3 * sum(w * h for w, h in zip(shares, hidden, strict=True)))


def test_a_stream_that_the_network_lacks_is_refused() -> None:
    side = {"adapter": "side", "after": [1], "size": 4, "num_heads": 2}
    for adapter in (MIX, side):
        with pytest.raises(WorkbenchError, match=r"unknown stream 'texts' in the network.*Valid: text"):
            network([{**adapter, "stream": "texts"}])


def test_a_run_trains_it_alone(make_recipe: Callable[..., Path], tmp_path: Path) -> None:  # noqa: F811
    check_trained_alone(make_recipe, tmp_path, MIX, "end.")

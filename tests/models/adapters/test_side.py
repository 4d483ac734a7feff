"""A stack next to the network: the formula, several of them, reading on, and a run that trains one on another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.cases import AdapterCase
from tests.models import test_kv_cache as caches
from tests.models import test_sharing as sharing
from tests.models.adapters.adapter_runs import batch, check_trained_alone, network, trained
from tests.training.conftest import make_recipe, world_folder  # noqa: F401 - fixtures
from workbench.core.errors import WorkbenchError
from workbench.models.adaptation import adapt
from workbench.models.context import Context
from workbench.pretraining.forward import ForwardPass, ViewKey

QUIET = {"dropout": 0.0, "attention_dropout": 0.0}
SIDE = {"adapter": "side", "stream": "text", "after": [0, 2], "size": 4, "depth": 1, "num_heads": 2, **QUIET}
OPTIONS = {name: value for name, value in SIDE.items() if name != "adapter"}
CASE = AdapterCase(OPTIONS, {"merge": "it has layers of its own"})


def side_of(made: Any, number: int = 0) -> Any:
    return made.adapters[number]["end"]


@torch.no_grad()
def test_the_stack_is_the_formula() -> None:
    plain, adapted = network(), network([SIDE])
    assert torch.equal(adapted(batch())["text"], plain(batch())["text"])
    trained(adapted)
    context = Context(batch(), keep_hidden=True)
    made, side = plain(batch(), context)["text"], side_of(adapted)

    def layer(number: int, rows: torch.Tensor) -> torch.Tensor:
        own = side.layers[number]
        inner = own.layers[0]({"text": own.down(rows)}, Context(batch()))["text"]
        return rows + own.up(inner)

    first = layer(0, context.hidden[0]["text"])
    second = layer(1, context.hidden[2]["text"] + first)
    wanted = side.combine(torch.cat([made, second], -1))
    torch.testing.assert_close(adapted(batch())["text"], wanted)
    assert not torch.allclose(wanted, made, atol=0.1)


def test_it_alone_learns() -> None:
    adapted = network([SIDE])
    assert {n.split(".")[0] for n, p in adapted.named_parameters() if p.requires_grad} == {"adapters"}
    trained(adapted)
    adapted(batch())["text"].square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in adapted.adapters.parameters())


@torch.no_grad()
def test_several_stacks_read_the_network_and_not_each_other() -> None:
    both, second = network([SIDE, SIDE]), network([SIDE])
    trained(both)
    side_of(both, 0).initialise(0.3)  # a stack that has learned nothing changes nothing
    side_of(second).load_state_dict(side_of(both, 1).state_dict())
    torch.testing.assert_close(both(batch())["text"], second(batch())["text"])


@pytest.mark.parametrize("keeps", ["keys", "rows"])
@torch.no_grad()
def test_what_reads_on_has_the_kv_caches_of_every_stack(keeps: Any) -> None:
    read = caches.network("self")
    adapt(read, [SIDE, {**SIDE, "after": [1]}], 0.3, "model.adapt")
    trained(read.eval())
    caches.check_pieces(read, caches.whole(), keeps)


@torch.no_grad()
def test_views_with_a_stream_in_common_are_read_whole() -> None:
    made = sharing.network(*sharing.ALBEF)
    adapt(made, [{**SIDE, "after": [1, 5]}], 0.3, "model.adapt")
    trained(made)
    views = sharing.share_streams({"main": sharing.view(), "other": sharing.view(text=2)})
    forward = ForwardPass({"main": made}, views)
    for name, view in views.items():
        torch.testing.assert_close(forward.read(ViewKey("main", name)).states, made(view))
    with pytest.raises(WorkbenchError, match=r"behind the tap 'tap' .*an adapter .*all layers"):
        made(views["main"], after="tap", taps=made.embed(views["main"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": [0, 3]}, r"model\.adapt\[0\].*after = \[0, 3\]; allowed: rising numbers from 0 to 2"),
        ({"after": [1, 1]}, r"after = \[1, 1\]; allowed: rising"),
        ({"after": []}, r"after = \[\]"),
        ({"stream": "image"}, "unknown stream 'image'"),
        ({"num_heads": 3}, "num_heads = 3 does not divide the width 4"),
        ({"targets": ["layers.*"]}, r"targets: 'layers\.\*' matches no network.*Some: end"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        network([{**SIDE, **change}])


def test_a_run_trains_it_alone(
    make_recipe: Callable[..., Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    check_trained_alone(make_recipe, tmp_path, SIDE, "end.")

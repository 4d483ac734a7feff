"""Prefixes: they are a KV cache of every sequence; reading on after them; a run that trains one on another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.cases import AdapterCase
from tests.models import test_kv_cache as caches
from tests.models.adapters.adapter_runs import check_trained_alone
from tests.training.conftest import make_recipe, world_folder  # noqa: F401 - fixtures
from workbench.core.errors import WorkbenchError
from workbench.models.adaptation import adapt
from workbench.models.adapters import PrefixAdapter
from workbench.models.attention.call import use_kernel
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.network import Network
from workbench.sequences.batch import Batch

CASE = AdapterCase(
    {"size": 3},
    {"begins": "its rows take their share of the attention", "merge": "attention reads more rows"},
)
PREFIX = {"adapter": "prefix", "targets": ["layers.*"], "size": 3}


def network(name: str) -> Network:
    made = caches.network(name)
    adapt(made, [PREFIX], 0.5, "model.adapt")
    return made.eval()


def as_cache(made: Network, batch: Batch) -> KVCache:
    """The prefixes of a stack of self-attention layers on the text, as what was read before."""
    count = batch.size
    places = {name.split(":")[1]: adapter for name, adapter in made.adapters[0].items()}  # type: ignore[operator]
    positions = torch.arange(-3, 0).repeat(count)
    fields = {"position_ids": positions, "rank": torch.zeros_like(positions), "until": torch.zeros_like(positions)}
    kept = {
        f"{n}.0": {"text": torch.stack([found.keys, found.values], 1).repeat(count, 1, 1, 1)}
        for n, found in places.items()
    }
    return KVCache("keys", {"text": caches.stream([3] * count, fields)}, kept)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        *[(name, "padded") for name in ("self", "rotary, pre", "window", "buckets", "alibi")],
        ("window", "dense"),
        ("alibi", "dense"),
        ("window", "flex"),
    ],
)
@torch.no_grad()
def test_a_prefix_is_a_kv_cache_of_every_sequence(name: str, kernel: str) -> None:
    plain, adapted, batch = caches.network(name), network(name), caches.whole()
    batch = Batch({"text": batch.streams["text"]})
    with use_kernel(kernel):
        wanted = plain(batch, Context(batch, cache=as_cache(adapted, batch)))["text"]
        found = adapted(batch)["text"]
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(found, plain(batch)["text"], atol=1e-3)


@pytest.mark.parametrize("keeps", ["keys", "rows"])
@pytest.mark.parametrize("name", ["self", "window", "joint", "cross"])
@torch.no_grad()
def test_what_reads_on_has_its_prefix(name: str, keeps: Any) -> None:
    caches.check_pieces(network(name), caches.whole(), keeps)


@torch.no_grad()
def test_kept_weights_are_those_of_the_streams() -> None:
    read, batch = network("self"), caches.whole()
    for kernel in ("dense", "padded"):
        context = Context(batch, keep_attention=True)
        with use_kernel(kernel):
            read(batch, context)
        weights = context.attention[0].weights
        assert [one.shape for one in weights] == [(2, n, n) for n in batch.streams["text"].lengths]
        assert all((one.sum(-1) < 1).all() for one in weights), "the rest is the prefix's"


def test_packed_texts_are_refused() -> None:
    read, batch = network("self"), caches.whole()
    batch.streams["text"].fields["doc"] = torch.zeros(14, dtype=torch.long)
    with pytest.raises(WorkbenchError, match=r"model\.adapt\[0\].*prefix.*packed into a sequence.*use a builder"):
        read(batch)


def test_what_is_not_there_is_reported() -> None:
    with pytest.raises(WorkbenchError, match=r"targets: 'encoder\.\*' matches no attention of the network\. Some: lay"):
        adapt(caches.network("self"), [{**PREFIX, "targets": ["encoder.*"]}], 0.5, "model.adapt")
    with pytest.raises(WorkbenchError, match="size = 0; allowed: a whole number from 1"):
        adapt(caches.network("self"), [{**PREFIX, "size": 0}], 0.5, "model.adapt")


def test_a_new_one_is_drawn() -> None:
    torch.manual_seed(0)
    made = PrefixAdapter(4, 8, size=50)
    made.initialise(0.02)
    for rows in (made.keys, made.values):
        assert 0.018 < rows.std() < 0.022


def test_a_run_trains_it_alone(
    make_recipe: Callable[..., Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    check_trained_alone(make_recipe, tmp_path, PREFIX, "layers:")

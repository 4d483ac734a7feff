"""Which kernel serves which layer, by what is asked for, tried with rows that say they are on a GPU."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.attention.strange_streams import stream_of
from workbench.models.attention import call, flex
from workbench.models.attention.call import choose, chosen
from workbench.models.attention.request import Request
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.layout import CacheLayout, Layout, layout_of
from workbench.models.network import Network
from workbench.models.score_biases.alibi import AlibiBias
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch


class OnCuda(torch.Tensor):
    """A tensor that says it is on a GPU, for kernels that are chosen and not run."""

    is_cuda = True  # type: ignore[assignment]


def asked(layout: Layout, dtype: torch.dtype = torch.bfloat16, keys: Layout | None = None, **more: Any) -> Request:
    keys = keys or layout
    q, k = (
        torch.zeros(1, 4, 32, dtype=dtype).expand(rows, -1, -1).as_subclass(OnCuda) for rows in (layout.rows, keys.rows)
    )
    return Request(q, k, k, layout, keys, **more)


def layout(kind: str, sizes: list[int]) -> Layout:
    ranks = {
        "all": lambda n: np.zeros(n, np.int64),
        "causal": np.arange,
        "prefix": lambda n: np.maximum(np.arange(n) - 2, 0),
    }[kind]
    return layout_of([stream_of(sizes, {"rank": np.concatenate([ranks(n) for n in sizes])})])


LARGE, FEW = [1200] * 3, [20, 30]


@pytest.mark.parametrize(
    ("kind", "sizes", "more", "expected"),
    [
        ("all", LARGE, {}, "varlen"),
        ("causal", LARGE, {}, "varlen"),
        ("causal", FEW, {"dropout": 0.1}, "varlen"),
        ("causal", LARGE, {"window": 8}, "varlen"),
        ("all", LARGE, {"window": 8}, "varlen"),
        ("prefix", LARGE, {}, "flex"),
        ("causal", LARGE, {"dtype": torch.float32}, "flex"),
        ("causal", LARGE, {"score_bias": AlibiBias(4)}, "flex"),
        ("prefix", FEW, {}, "padded"),
        ("causal", FEW, {"dtype": torch.float32}, "padded"),
        ("causal", FEW, {"score_bias": AlibiBias(4)}, "padded"),
        ("all", FEW, {"need_weights": True}, "padded or dense"),
    ],
)
def test_the_kernel_by_what_is_asked_for(kind: str, sizes: list[int], more: dict[str, Any], expected: str) -> None:
    assert choose(asked(layout(kind, sizes), **more)).name in expected.split(" or ")


@torch.no_grad()
def test_generation_compiles_nothing_for_a_token() -> None:
    """Keys that stand apart with a long cache are read as they are, also by many texts at once."""
    long = layout("causal", LARGE)
    (stream,) = long.streams
    own = layout_of([stream_of([1] * 3, {"rank": np.full(3, 1200)})])
    spread = CacheLayout(stream, 1200)
    assert flex.SMALL < 3 * 1200 * 1200
    assert choose(asked(own, keys=spread)).name == "padded"
    assert choose(asked(long, keys=spread)).name == "padded"


@torch.no_grad()
def test_a_prompt_is_known_to_be_causal_and_a_token_is_not_taken_for_one() -> None:
    spec = NetworkSpec(
        {"text": {"embedding": "token", "vocab_size": 9, "hidden_size": 32, "max_positions": None, "token_types": 0}},
        [{"layer": "self", "stream": "text", "num_heads": 2}],
    )
    network, seen = Network(spec).eval(), []
    prompt = stream_of([3, 4], {"rank": np.concatenate([np.arange(3), np.arange(4)])})
    prompt.fields["input_ids"] %= 9
    token = stream_of([1, 1], {"rank": np.array([3, 4])})
    cache = KVCache("keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call, "choose", lambda request: seen.append(request) or choose(request))
        for stream in (prompt, token):
            context = Context(Batch({"text": stream}), cache=cache)
            network(Batch({"text": stream}), context)
            cache = context.updated_cache
    first, second = seen
    assert first.queries is first.keys
    assert first.keys.pattern is not None
    assert first.keys.pattern.causal
    assert isinstance(second.keys, CacheLayout)
    assert second.keys.pattern is None


def test_what_was_chosen_is_reported_once_for_a_kind_of_layer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "_chosen", {})
    caplog.set_level(logging.INFO)
    for _ in range(2):
        choose(asked(layout("prefix", LARGE), label="self(text), 4 heads"))
        choose(asked(layout("causal", LARGE), label="self(text), 4 heads, window 8", window=8))
    assert [str(choice) for choice in chosen()] == caplog.messages
    assert caplog.messages[1:] == ["attention of self(text), 4 heads, window 8: varlen (cpu, bfloat16)"]
    assert caplog.messages[0].startswith(
        "attention of self(text), 4 heads: flex (cpu, bfloat16; varlen cannot do ranks that neither are equal nor rise"
    )


def test_layers_say_whose_attention_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "_chosen", {})
    embedding = {"embedding": "token", "vocab_size": 60, "hidden_size": 32, "max_positions": None, "token_types": 0}
    common = {"num_heads": 2, "repeat": 2}
    layers = [
        {"layer": "self", "stream": "text", "window": 3, "score_bias": "alibi", **common},
        {"layer": "cross", "stream": "text", "to": "image", **common},
        {"layer": "joint", "streams": ["text", "image"], **common},
    ]
    network = Network(NetworkSpec({"text": embedding, "image": embedding}, layers))
    network(Batch({"text": stream_of([3, 4], {}), "image": stream_of([2, 2], {})}))
    assert [choice.label for choice in chosen()] == [
        "self(text), 2 heads, window 3, alibi",
        "cross(text), 2 heads",
        "cross(text to image), 2 heads",
        "joint(text, image), 2 heads",
    ]


@pytest.mark.long
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@torch.no_grad()
def test_fifty_ragged_batches_are_compiled_once_for_a_kind_of_layer(
    dropout: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the counters of the compiler; sequences of one row, batches of one block and of many, and windows of any width
    among them. Each compilation is logged once."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    made: dict[Any, Any] = {}

    def compiled(function: Any, on_cuda: bool) -> Any:
        return made.setdefault(function, torch.compile(function, dynamic=True, fullgraph=True, backend="eager"))

    monkeypatch.setattr(flex, "_function", compiled)
    monkeypatch.setattr(flex, "_announced", set())
    caplog.set_level(logging.INFO)
    rng, kinds = np.random.default_rng(0), 0
    for window, score_bias in ((None, None), (7, None), (None, AlibiBias(4))):
        kinds += 1
        before = counters["stats"]["unique_graphs"]
        for number in range(50):
            sizes = [int(n) for n in rng.integers(1, 4 if number < 5 else 160, rng.integers(2, 6))]
            at = layout("prefix", sizes)
            q = torch.randn(at.rows, 4, 16)
            more = {"window": window and int(rng.integers(2, 90)), "score_bias": score_bias, "dropout": dropout}
            flex._announce(Request(q, q, q, at, at, **more))
            flex.flex(Request(q, q, q, at, at, **more))
        assert counters["stats"]["unique_graphs"] - before == 1
    assert sum("compiling flex" in message for message in caplog.messages) == kinds

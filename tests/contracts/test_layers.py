"""Contracts of every layer that a recipe can name: a layer without a case here fails the suite."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.models.context import Context
from workbench.parts import building as parts
from workbench.parts.kinds import KINDS
from workbench.sequences.batch import Batch, Stream

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"text": 16, "image": 16, "entity": 8}
QUIET = {"dropout": 0.0, "attention_dropout": 0.0}
CASES: dict[str, dict[str, Any]] = {
    "self": {"stream": "text", "num_heads": 2},
    "norm": {"stream": "text"},
    "joint": {"streams": ["text", "image"], "num_heads": 2},
    "co": {"streams": ["text", "image"], "num_heads": 2},
    "cross": {"stream": "text", "to": "image", "num_heads": 2},
    "tap": {"name": "here"},
    "kg.aggregator": {"streams": ["text", "entity"], "num_heads": [2, 2]},
}
LENGTHS = {"text": [5, 1, 7], "image": [3, 2, 4], "entity": [2, 1, 1]}


def layers_of_rooms() -> set[str]:
    """Classes of kg and vision that are layers: modules whose forward takes (hidden, context)."""
    found = set()
    for path in [*(ROOT / "kg").rglob("*.py"), *(ROOT / "vision").rglob("*.py")]:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            forwards = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "forward"]
            if [a.arg for m in forwards for a in m.args.args] == ["self", "hidden", "context"]:
                found.add(f"{module}:{node.name}")
    return found


def test_every_layer_has_a_case() -> None:
    assert set(CASES) == set(parts.short_names("layer"))


def test_every_layer_lies_where_its_short_name_says() -> None:
    assert layers_of_rooms() <= {KINDS["layer"].path(name) for name in CASES}


def build(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    quiet = {} if name in ("norm", "tap") else QUIET
    layer: nn.Module = parts.build("layer", {"layer": name, **CASES[name], **quiet, **options}, sizes=SIZES)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def batch_of(sequences: list[int]) -> tuple[Batch, dict[str, Tensor]]:
    """The given ones of three sequences with fixed states."""
    g = torch.Generator().manual_seed(1)
    streams, hidden = {}, {}
    text_starts = torch.tensor([0, *(LENGTHS["text"][i] for i in sequences)]).cumsum(0)
    for name, lengths in LENGTHS.items():
        states = torch.randn(sum(lengths), SIZES[name], generator=g).split(lengths)
        kept = [lengths[i] for i in sequences]
        fields = {}
        if name == "entity":  # each entity hangs on its sequence's first tokens
            token = torch.cat([text_starts[n] + torch.arange(length) for n, length in enumerate(kept)])
            fields = {"entity_ids": torch.ones(sum(kept), dtype=torch.long), "token": token}
        streams[name] = Stream(fields, torch.tensor([0, *kept]).cumsum(0), kept)
        hidden[name] = torch.cat([states[i] for i in sequences])
    return Batch(streams), hidden


@pytest.mark.parametrize("name", sorted(CASES))
def test_packed_equals_alone(name: str) -> None:
    layer = build(name)
    batch, hidden = batch_of([0, 1, 2])
    together = layer(hidden, Context(batch))
    for i in range(3):
        one, its_hidden = batch_of([i])
        alone = layer(its_hidden, Context(one))
        for stream, states in alone.items():
            expected = together[stream].split(LENGTHS[stream])[i]
            torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(CASES))
def test_shapes_stay_and_gradients_are_finite(name: str) -> None:
    layer = build(name)
    batch, hidden = batch_of([0, 1, 2])
    leaves = {stream: states.requires_grad_() for stream, states in hidden.items()}
    out = layer(leaves, Context(batch))
    assert {s: t.shape for s, t in out.items()} == {s: t.shape for s, t in hidden.items()}
    sum(states.square().sum() for states in out.values()).backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all()
        assert float(parameter.grad.abs().sum()) > 0, parameter_name


@pytest.mark.parametrize("name", sorted(set(CASES) - {"norm", "tap"}))
def test_every_layer_takes_the_terms_of_attention(name: str) -> None:
    """A relation, a window, a scale, and no bias anywhere: they change the states, and the packed ones are the same."""
    batch, hidden = batch_of([0, 1, 2])
    changes = [{"relation": "buckets"}, {"window": 1}, {"scale": 0.1}]
    plain = build(name, bias=False)
    assert not [path for path, _ in plain.named_parameters() if path.endswith("bias")]
    for change in changes:
        layer = build(name, bias=False, **change)
        layer.load_state_dict(plain.state_dict(), strict=False)
        together = layer(hidden, Context(batch))
        assert not torch.allclose(together["text"], plain(hidden, Context(batch))["text"], atol=1e-3), change
        one, its_hidden = batch_of([2])
        alone = layer(its_hidden, Context(one))["text"]
        torch.testing.assert_close(alone, together["text"].split(LENGTHS["text"])[2], atol=1e-5, rtol=1e-5)


def test_cross_attention_alone_has_no_distances() -> None:
    with pytest.raises(WorkbenchError, match="self_attention is false"):
        build("cross", self_attention=False, window=2)


@pytest.mark.parametrize("left", ["text", "image"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_batch_of_one_stream_passes(name: str, left: str) -> None:
    """Texts or images alone, as a dual encoder's: a layer leaves streams alone that are not there, its own too."""
    batch, hidden = batch_of([0, 1, 2])
    batch.streams = {left: batch.streams[left]}
    out = build(name)({left: hidden[left]}, Context(batch))
    assert {stream: states.shape for stream, states in out.items()} == {left: hidden[left].shape}

"""Transformer-XL's relative positions against their equation, written out as loops."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tests.contracts.attention_inputs import HEADS, SIZE, attended, rows
from tests.contracts.cases import ScoreBiasCase
from workbench.components.building import build
from workbench.models.attention.call import attend, use_kernel
from workbench.models.layout import Layout
from workbench.models.network import Network
from workbench.models.score_biases import relative
from workbench.models.score_biases.relative import RelativeBias
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Stream

CONTENT = "what it adds depends on what the rows hold, and flex sees single scores"
CASES = {
    "": ScoreBiasCase(excused={"flex": CONTENT}),
    "with segments": ScoreBiasCase({"segments": True}, {"flex": CONTENT}),
}
WIDTH = HEADS * SIZE


def sinusoids(distance: int) -> list[float]:
    """R of one distance."""
    angles = [distance * 10000 ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


def score(score_bias: RelativeBias, q: Tensor, k: Tensor, h: int, distance: int, differ: int) -> float:
    """((q + u) k + (q + v) W R + (q + s) e) / sqrt(size) of one head."""
    looked = score_bias.project.weight.view(HEADS, SIZE, WIDTH)[h] @ torch.tensor(sinusoids(distance))
    u, v = score_bias.biases.content_bias[h], score_bias.biases.position_bias[h]
    total = (q + u) @ k + (q + v) @ looked
    if score_bias.segment is not None and score_bias.biases.segment_bias is not None:
        total = total + (q + score_bias.biases.segment_bias[h]) @ score_bias.segment[differ, h]
    return float(total) / math.sqrt(SIZE)


@pytest.mark.parametrize("segments", [False, True])
@torch.no_grad()
def test_attention_equals_the_equation(segments: bool) -> None:
    torch.manual_seed(0)
    score_bias = RelativeBias(HEADS, SIZE, segments)
    score_bias.initialise(0.3)
    positions, types = torch.tensor([0, 1, 2, 3, 7, 150]), torch.tensor([0, 0, 0, 1, 1, 2])
    fields = {"position_ids": positions, "token_type_ids": types}
    offsets = torch.tensor([0, 6])
    layout = Layout([6], offsets, {"rank": torch.arange(6)}, streams=(Stream(fields, offsets, [6]),))
    q, k, v = (rows(6, seed) for seed in range(3))
    with use_kernel("dense"):
        _, weights = attend(q, k, v, layout, layout, score_bias=score_bias, need_weights=True)
    assert weights is not None
    for h in range(HEADS):
        for i in range(6):
            distances = [int(positions[i] - positions[j]) for j in range(i + 1)]
            differ = [int(types[i] != types[j]) for j in range(i + 1)]
            scores = [score(score_bias, q[i, h], k[j, h], h, distances[j], differ[j]) for j in range(i + 1)]
            expected = torch.softmax(torch.tensor(scores), 0)
            torch.testing.assert_close(weights[0][h, i, : i + 1], expected, atol=1e-5, rtol=1e-5)


def test_the_scale_is_that_of_the_layer() -> None:
    """A layer's own `scale` is of the sum, as the paper's 1 / sqrt(size) is."""
    score_bias = RelativeBias(HEADS, SIZE)
    score_bias.initialise(0.3)
    layout = Layout([5], torch.tensor([0, 5]), {})
    q, k, v = (rows(5, seed) for seed in range(3))
    found = [attend(q, k, v, layout, layout, score_bias=score_bias, scale=s, need_weights=True)[1] for s in (1.0, 0.5)]
    logs = [torch.log(weights[0]) for weights in found if weights is not None]
    halves = [(log - log[..., :1]) for log in logs]
    torch.testing.assert_close(halves[0] / 2, halves[1], atol=1e-4, rtol=1e-4)


def test_one_u_and_one_v_for_all_layers() -> None:
    """The paper's equation has an index of the layer at W, and none at u and v."""
    layer = {
        "layer": "self",
        "stream": "text",
        "num_heads": 2,
        "score_bias": "relative",
        "repeat": 3,
        "share": "biases",
    }
    text = {"embedding": "token", "vocab_size": 9, "hidden_size": 8, "max_positions": None}
    network = Network(NetworkSpec({"text": text}, [layer]))
    score_biases = [module for module in network.modules() if isinstance(module, RelativeBias)]
    assert len(score_biases) == 3
    assert len({id(score_bias.biases) for score_bias in score_biases}) == 1
    assert len({id(score_bias.project) for score_bias in score_biases}) == 3


def test_fresh_biases_are_drawn() -> None:
    score_bias = build("score_bias", {"score_bias": "relative", "segments": True}, "", num_heads=2, head_size=4)
    score_bias.initialise(0.02)
    assert all(float(p.detach().std()) > 0.005 for p in score_bias.parameters())


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("streams", [("text",), ("text", "image")])
def test_the_distances_of_the_whole_batch_serve_every_grid(
    monkeypatch: pytest.MonkeyPatch, streams: tuple[str, ...], plain: bool
) -> None:
    """As on a device that is not asked for those of each grid."""
    made = RelativeBias(HEADS, SIZE, segments=True)
    made.initialise(0.3)
    expected = attended(made, "padded", streams, plain)
    elsewhere, bounds = SimpleNamespace(device=torch.device("cuda")), relative._bounds
    monkeypatch.setattr(relative, "_bounds", lambda pair, distance: bounds(pair, elsewhere))  # type: ignore[arg-type]
    for found, wanted in zip(attended(made, "padded", streams, plain), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_what_evaluation_has_made_training_may_use() -> None:
    """Tables that were made while nothing learns are tables of training too."""
    score_bias = RelativeBias(HEADS, SIZE)
    q, k, v = (rows(70, seed) for seed in range(3))

    def read() -> Tensor:
        layout = Layout([70], torch.tensor([0, 70]), {})
        return attend(q, k, v, layout, layout, score_bias=score_bias)[0]

    with torch.inference_mode():
        read()
    read().sum().backward()
    assert score_bias.project.weight.grad is not None

"""The embedding `vision.roi_feature`."""

from __future__ import annotations

import numpy as np
import torch

from tests.contracts.cases import EmbeddingCase
from vision.models.embeddings.roi_feature import RoiFeatureEmbedding

SIDE = 64
CASE = EmbeddingCase(
    {"hidden_size": 8, "backbone": "test_resnet", "size": SIDE, "waves": 2, "dropout": 0.0}, content="pixels"
)


def made(**options: object) -> RoiFeatureEmbedding:
    torch.manual_seed(0)
    return RoiFeatureEmbedding(8, "test_resnet", SIDE, waves=2, dropout=0.0, **options)  # type: ignore[arg-type]


def fields(images: int) -> dict[str, torch.Tensor]:
    """Of each image a box at the left, one at the right, and the whole."""
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (images, 3, SIDE, SIDE), np.uint8))
    boxes = torch.tensor([[0.0, 0.0, 0.3, 1.0], [0.7, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]).repeat(images, 1)
    return {"pixels": pixels, "boxes": boxes, "first": torch.tensor([True, False, False]).repeat(images)}


def test_each_row_is_of_its_own_image() -> None:
    embedding, both = made().eval(), fields(2)
    alone = {name: values[len(values) // 2 :] for name, values in both.items()}
    torch.testing.assert_close(embedding(both)[3:], embedding(alone))
    assert not torch.allclose(embedding(both)[:3], embedding(alone))


def test_a_row_is_the_mean_of_the_map_in_its_box() -> None:
    embedding, one = made().eval(), fields(1)
    maps = embedding.backbone.maps(one["pixels"])
    found = embedding.backbone.in_boxes(maps, one["boxes"], torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(found[2], maps[0].mean((1, 2)), rtol=1e-4, atol=1e-5)


def test_the_network_learns_and_its_batch_statistics_stay() -> None:
    embedding = made().train()
    before = {name: values.clone() for name, values in embedding.backbone.network.named_buffers()}
    embedding(fields(2)).sum().backward()
    assert all(torch.equal(values, before[name]) for name, values in embedding.backbone.network.named_buffers())
    first = next(embedding.backbone.network.parameters())
    assert first.grad is not None
    assert first.grad.abs().sum() > 0


def test_a_frozen_network_does_not_learn() -> None:
    assert not any(weight.requires_grad for weight in made(trainable=False).backbone.parameters())

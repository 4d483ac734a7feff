"""The convolutional stem: rows by cells, images by themselves, its own initial weights."""

from __future__ import annotations

import pytest
import torch

from vision.boxes import grid_boxes
from vision.stem import StemEmbedding
from workbench.config import NetworkSpec
from workbench.errors import WorkbenchError
from workbench.models.network import Network


def stem() -> StemEmbedding:
    torch.manual_seed(0)
    return StemEmbedding(8, 4, [16, 32], dropout=0.0).eval()


def fields(images: int, side: int = 16) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (images, 3, side, side), dtype=torch.uint8, generator=generator)
    return {"pixels": pixels, "boxes": torch.from_numpy(grid_boxes(4)).repeat(images, 1)}


def test_each_image_is_embedded_by_itself() -> None:
    embedding, three = stem(), fields(3)
    whole = embedding(three)
    assert whole.shape == (48, 8)
    for i in range(3):
        alone = embedding({"pixels": three["pixels"][i : i + 1], "boxes": three["boxes"][:16]})
        torch.testing.assert_close(whole[16 * i : 16 * i + 16], alone, atol=1e-5, rtol=1e-5)


def test_rows_are_cells_row_by_row() -> None:
    """The features before norm and position change most in the cell whose pixels change."""
    embedding = stem()
    for norm in (layer for layer in embedding.modules() if isinstance(layer, torch.nn.GroupNorm)):
        torch.nn.init.zeros_(norm.bias)
    one = fields(1)
    other = {**one, "pixels": one["pixels"].clone()}
    other["pixels"][0, :, 4:8, 12:16] = 255 - other["pixels"][0, :, 4:8, 12:16]
    change = (embedding(one) - embedding(other)).abs().sum(1)
    assert int(change.argmax()) == 4 * 1 + 3


def test_masked_rows_do_not_know_their_pixels() -> None:
    embedding, one, other = stem(), fields(1), fields(1)
    other["pixels"] = 255 - other["pixels"]
    masked = torch.arange(16) < 5
    with_mask = [embedding({**f, "masked": masked}) for f in (one, other)]
    torch.testing.assert_close(with_mask[0][:5], with_mask[1][:5])
    assert not torch.allclose(with_mask[0][5:], with_mask[1][5:])


def test_convolutions_keep_their_initial_scale() -> None:
    spec = NetworkSpec(
        streams={
            "image": {"embedding": "vision.stem:StemEmbedding", "hidden_size": 8, "grid": 4, "channels": [16, 32]}
        },
        init_range=5.0,
    )
    embedding = Network(spec).embeddings["image"]
    assert isinstance(embedding, StemEmbedding)
    assert embedding.convolutions[1][0].weight.std() < 1 < embedding.project.weight.std()


def test_wrong_inputs() -> None:
    with pytest.raises(WorkbenchError, match="16 x 16 pixels, the batch has images of 32 pixels"):
        stem()(fields(1, 32))
    with pytest.raises(WorkbenchError, match="the batch has no pixels"):
        stem()({"boxes": torch.zeros(16, 4)})
    with pytest.raises(WorkbenchError, match="multiples of 16"):
        StemEmbedding(8, 4, [16, 24])

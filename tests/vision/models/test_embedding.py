"""Embeddings of the image stream."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from vision.images.boxes import grid_boxes
from vision.images.transforms import NORMALISATIONS
from vision.models.embeddings.grid import GridEmbedding
from vision.models.embeddings.patches import PatchesEmbedding
from vision.models.embeddings.regions import RegionsEmbedding
from vision.sequences.image_processors.patches import cut
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.initialisation import initialise

BACKBONE = {"backbone": "test_efficientnet", "size": 64, "grid": 2}


def fields_for(embedding: nn.Module, images: int = 2) -> dict[str, Tensor]:
    boxes = torch.from_numpy(grid_boxes(2)).repeat(images, 1)
    torch.manual_seed(7)
    if isinstance(embedding, PatchesEmbedding):
        return {"patches": torch.randint(0, 256, (4 * images, 48), dtype=torch.uint8), "boxes": boxes}
    if isinstance(embedding, GridEmbedding):
        return {"pixels": torch.randint(0, 256, (images, 3, 64, 64), dtype=torch.uint8), "boxes": boxes}
    return {"features": torch.randn(4 * images, 6), "boxes": boxes}


EMBEDDINGS = {
    "patches-1d": lambda: PatchesEmbedding(8, 2, 4),
    "patches-2d": lambda: PatchesEmbedding(8, 2, 4, positions="2d", norm=True),
    "uniter": lambda: RegionsEmbedding(8, 6),
    "lxmert": lambda: RegionsEmbedding(
        8, 6, box_size=4, average=True, norm_sum=False, type_vector=False, mask_vector=False
    ),
    "vilbert": lambda: RegionsEmbedding(8, 6, box_size=5, norm_parts=False, type_vector=False, mask_vector=False),
    "visualbert": lambda: RegionsEmbedding(8, 6, box_size=0, norm_parts=False, mask_vector=False),
    "grid": lambda: GridEmbedding(8, **BACKBONE),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_a_masked_row_says_nothing_of_its_features(name: str) -> None:
    embedding = EMBEDDINGS[name]().eval()
    fields = fields_for(embedding)
    masked = torch.zeros(8, dtype=torch.bool)
    masked[3] = True
    before = embedding({**fields, "masked": masked})
    content = next(k for k in ("patches", "features", "pixels") if k in fields)
    changed = fields[content].clone()
    changed[3 if content != "pixels" else slice(0, 1)] = 1
    after = embedding({**fields, content: changed, "masked": masked})
    assert before.shape == (8, embedding.hidden_size)
    torch.testing.assert_close(after[3], before[3])
    assert not torch.allclose(embedding(fields)[3], before[3])


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_packed_equals_alone(name: str) -> None:
    embedding = EMBEDDINGS[name]().eval()
    fields = fields_for(embedding)
    half = {k: v[: len(v) // 2] for k, v in fields.items()}
    torch.testing.assert_close(embedding(fields)[:4], embedding(half), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_every_trainable_parameter_gets_a_finite_gradient(name: str) -> None:
    embedding = EMBEDDINGS[name]()
    fields = fields_for(embedding)
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    if "patches" in fields:
        fields = {
            "patches": torch.cat([fields["patches"], torch.zeros(1, 48, dtype=torch.uint8)]),
            "boxes": torch.cat([fields["boxes"], whole]),
        }
    masked = torch.arange(len(fields["boxes"])) == 1
    (embedding({**fields, "masked": masked}) * torch.randn(8)).sum().backward()
    for parameter_name, parameter in embedding.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name


def test_patches_know_their_place() -> None:
    embedding = PatchesEmbedding(8, 2, 4)
    boxes = torch.from_numpy(grid_boxes(2))
    same = embedding({"patches": torch.ones(4, 48, dtype=torch.uint8), "boxes": boxes})
    assert len(same.unique(dim=0)) == 4
    table = embedding.positions.tables[0].weight
    torch.testing.assert_close(same - same[:1], table - table[:1], atol=1e-5, rtol=0)


def test_the_class_row_has_a_vector_of_its_own() -> None:
    embedding = PatchesEmbedding(8, 2, 4)
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    out = embedding({"patches": torch.full((1, 48), 7, dtype=torch.uint8), "boxes": boxes})
    torch.testing.assert_close(out[0], embedding.whole + embedding.type_vector)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_patches_are_normalised_as_whole_images_are(normalisation: str) -> None:
    """On the device, and to the bit as (pixels / 255 - mean) / deviation of the image that they are cut from."""
    pixels = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8)
    mean, std = (torch.tensor(values)[:, None, None] for values in NORMALISATIONS[normalisation])
    embedding = PatchesEmbedding(8, 2, 4, normalisation=normalisation)
    assert torch.equal(embedding.normalise(cut(pixels, 4)), cut((pixels.float() / 255 - mean) / std, 4))
    assert not {"mean", "std"} & embedding.state_dict().keys(), "an option of the recipe, not weights"


def test_a_frozen_backbone_stays_as_it_is() -> None:
    embedding = GridEmbedding(8, **BACKBONE)
    before = {n: t.clone() for n, t in embedding.backbone.state_dict().items()}
    initialise(embedding, 0.02)
    embedding.train()
    embedding(fields_for(embedding)).sum().backward()
    assert all(torch.equal(t, before[n]) for n, t in embedding.backbone.state_dict().items())
    assert not any(p.requires_grad for p in embedding.backbone.parameters())


def test_a_trained_backbone_learns() -> None:
    embedding = GridEmbedding(8, **BACKBONE, trainable=True).train()
    (embedding(fields_for(embedding)) * torch.randn(8)).sum().backward()
    gradients = [p.grad for p in embedding.backbone.parameters()]
    assert sum(g is not None and g.abs().sum() > 0 for g in gradients) > len(gradients) / 2


def test_half_precision_features_are_the_numbers_that_they_are() -> None:
    embedding = RegionsEmbedding(8, 6).eval()
    fields = fields_for(embedding)
    half = {**fields, "features": fields["features"].half(), "masked": torch.arange(8) == 3}
    whole = {**half, "features": half["features"].float()}
    assert torch.equal(embedding(half), embedding(whole))


def test_errors_name_both_sides() -> None:
    for masked in ({}, {"masked": torch.arange(8) == 3}):
        with pytest.raises(WorkbenchError, match="have 6 numbers, the embedding's feature_size is 5"):
            RegionsEmbedding(8, 5)(fields_for(RegionsEmbedding(8, 5)) | masked)
    with pytest.raises(WorkbenchError, match="RegionsEmbedding needs 'features', the batch has boxes, patches"):
        RegionsEmbedding(8, 5)(fields_for(PatchesEmbedding(8, 2, 4)))
    with pytest.raises(WorkbenchError, match="normalisation = 'imagnet'; allowed: imagenet, clip, half"):
        build("embedding", {"embedding": "vision.patches", "normalisation": "imagnet"})
    with pytest.raises(WorkbenchError, match="box_size = 6; allowed: 0, 4, 5, 7"):
        build("embedding", {"embedding": "vision.regions", "box_size": 6})
    grid = GridEmbedding(8, **BACKBONE)
    with pytest.raises(WorkbenchError, match="returns 2 x 2 rows an image, 8 in all, but the batch has 18"):
        grid({**fields_for(grid), "boxes": torch.from_numpy(grid_boxes(3)).repeat(2, 1)})


@pytest.mark.parametrize("cells", [(2, 3), (5, 4), (1, 3), (3, 3)])
def test_positions_of_another_grid_lie_between(cells: tuple[int, int]) -> None:
    """As torch interpolates a photograph of the table, corner to corner (ViLT)."""
    rows, columns = cells
    embedding = PatchesEmbedding(8, 3, 4, interpolate=True)
    y, x = (torch.arange(n + 1) / n for n in cells)
    corners = [[x[c], y[r], x[c + 1], y[r + 1]] for r in range(rows) for c in range(columns)]
    table = embedding.positions.tables[0].weight.t().reshape(1, 8, 3, 3)
    wanted = torch.nn.functional.interpolate(table, size=cells, mode="bilinear", align_corners=True)
    torch.testing.assert_close(embedding.positions(torch.tensor(corners)), wanted.flatten(2)[0].t())


def test_positions_of_rows_and_columns_are_not_interpolated() -> None:
    with pytest.raises(WorkbenchError, match="allowed with interpolate"):
        PatchesEmbedding(8, 3, 4, positions="2d", interpolate=True)


def test_what_is_left_out_of_patches_has_no_parameters() -> None:
    plain = PatchesEmbedding(8, 2, 4, bias=False, type_vector=False, mask_vector=False)
    assert {name for name, _ in plain.named_parameters()} == {"project.weight", "positions.tables.0.weight", "whole"}

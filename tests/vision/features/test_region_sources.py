"""Region features of a detector with random weights."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from vision.features.backbones import load
from vision.features.region_sources import Detector, GridRegions, load_detector
from workbench.core.errors import WorkbenchError

NAME = "fasterrcnn_mobilenet_v3_large_320_fpn"


@pytest.fixture(scope="module")
def detector() -> Detector:
    torch.manual_seed(0)
    return load_detector(NAME, num_classes=5, threshold=0.9, min_regions=4, max_regions=6)


def test_regions_of_a_batch(detector: Detector, photo: Callable[[int], bytes]) -> None:
    found = detector([detector.pixels(photo(i), "here") for i in range(2)])
    assert len(found) == 2
    for regions in found:
        n = len(regions["features"])
        assert 1 <= n <= 6
        assert regions["features"].shape == (n, 1024)
        assert regions["features"].dtype == regions["boxes"].dtype == regions["confidence"].dtype == np.float32
        assert ((regions["boxes"] >= 0) & (regions["boxes"] <= 1)).all()
        assert (regions["boxes"][:, 2:] > regions["boxes"][:, :2]).all()
        assert ((regions["classes"] >= 1) & (regions["classes"] < 5)).all()
        assert (np.diff(regions["confidence"]) <= 0).all()


def test_boxes_that_are_given_come_first(detector: Detector, photo: Callable[[int], bytes]) -> None:
    """Each with what the detector's head makes of it; its own detections are what they were."""
    scored = Detector(NAME, detector.network, threshold=0.9, min_regions=4, max_regions=6, scores=True)
    pixels = [scored.pixels(photo(i), "here") for i in range(2)]
    alone = scored(pixels)
    given = [alone[0]["boxes"][2:4], np.zeros((0, 4), np.float32)]
    first, second = scored(pixels, given)
    np.testing.assert_allclose(first["boxes"][:2], given[0], atol=1e-6)
    for name in ("features", "classes", "scores"):
        np.testing.assert_allclose(first[name][2:], alone[0][name], atol=1e-5)
        np.testing.assert_allclose(second[name], alone[1][name], atol=1e-5)
    np.testing.assert_allclose(first["features"][:2], alone[0]["features"][2:4], atol=1e-4)
    np.testing.assert_allclose(first["scores"][:2].sum(1), 1, rtol=1e-5)
    assert first["confidence"][:2].tolist() == [1.0, 1.0]
    assert {name: values.dtype for name, values in first.items()} == {n: v.dtype for n, v in alone[0].items()}


def test_boxes_within_a_grid(photo: Callable[[int], bytes]) -> None:
    """A box that is one cell of the map has that cell's features; half of two cells is between them."""
    torch.manual_seed(0)
    backbone = load("test_efficientnet", size=64, grid=2)
    source = GridRegions(backbone, scores=True)
    pixels = [source.pixels(photo(0), "here")]
    maps = backbone.maps(torch.stack(pixels))
    rows, columns = maps.shape[-2:]
    given = np.float32([[1 / columns, 0, 2 / columns, 1 / rows], [0, 0, 1, 1]])
    (found,) = source(pixels, [given])
    (alone,) = source(pixels)
    np.testing.assert_allclose(found["features"][0], maps[0, :, 0, 1].numpy(), atol=1e-5)
    np.testing.assert_allclose(found["features"][1], maps[0].mean((1, 2)).numpy(), atol=1e-5)
    np.testing.assert_allclose(found["features"][2:], alone["features"], atol=1e-6)
    np.testing.assert_allclose(found["boxes"], np.concatenate([given, alone["boxes"]]))
    assert found["confidence"][:2].tolist() == [1.0, 1.0]
    assert {name: values.dtype for name, values in found.items()} == {n: v.dtype for n, v in alone.items()}


def test_how_likely_each_class_is(detector: Detector, photo: Callable[[int], bytes]) -> None:
    scored = Detector(NAME, detector.network, threshold=0.9, min_regions=4, max_regions=6, scores=True)
    [found] = scored([scored.pixels(photo(0), "here")])
    assert found["scores"].shape == (len(found["features"]), 5)
    np.testing.assert_allclose(found["scores"].sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(found["scores"][:, 1:].argmax(1) + 1, found["classes"])
    assert scored.identity == detector.identity, "the features are the same"


def test_the_threshold_and_its_bounds(detector: Detector) -> None:
    boxes = torch.tensor([[[10.0 * i, 0.0, 10.0 * i + 8, 8.0]] * 3 for i in range(8)])
    scores = torch.tensor([[0.05, 0.95, 0.0]] * 2 + [[0.4, 0.3, 0.3]] * 6)
    kept, confidence, classes, distributions = detector._choose(boxes, scores, (100, 100))
    torch.testing.assert_close(distributions.max(-1).values[:2], confidence[:2])
    assert len(kept) == 4, "two are confident, min_regions is 4"
    assert confidence[0] == pytest.approx(0.95)
    assert classes[0] == 1
    all_sure = torch.tensor([[0.05, 0.95, 0.0]] * 8)
    assert len(detector._choose(boxes, all_sure, (100, 100))[0]) == 6
    same_place = boxes[:1].expand(8, 3, 4)
    assert len(detector._choose(same_place, all_sure, (100, 100))[0]) == 1


def test_weights_by_path(detector: Detector, tmp_path: Path) -> None:
    save_file(detector.network.state_dict(), tmp_path / "d.safetensors")
    options = {"threshold": 0.9, "min_regions": 4, "max_regions": 6}
    again = load_detector(NAME, str(tmp_path / "d.safetensors"), num_classes=5, **options)
    assert again.identity == detector.identity
    with pytest.raises(WorkbenchError, match="does not fit"):
        load_detector(NAME, str(tmp_path / "d.safetensors"), num_classes=7)


def test_a_bad_image_is_named(detector: Detector) -> None:
    with pytest.raises(WorkbenchError, match="corpus 'a', key 'b': not an image"):
        detector.pixels(b"nothing", "corpus 'a', key 'b'")


@pytest.mark.parametrize("size", [(1000, 1), (1, 1000)])
def test_an_image_that_vanishes_when_it_is_made_smaller_is_named(detector: Detector, size: tuple[int, int]) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", size).save(buffer, "PNG")
    with pytest.raises(WorkbenchError, match=rf"key 'b': the image is {size[0]} x {size[1]}, too thin for a detector"):
        detector.pixels(buffer.getvalue(), "key 'b'")


def test_an_unknown_detector() -> None:
    with pytest.raises(WorkbenchError, match="Did you mean"):
        load_detector("fasterrcnn_resnet50")

"""The stage that extracts region features, with a made-up backbone."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from pipelines.preparing.chunks import BLOCK, Conversion
from pipelines.readers.reader import Drop
from pipelines.stages import region_features
from pipelines.stages.region_features import RegionFeatures
from vision.images.decoding import decode
from workbench.core.errors import WorkbenchError


class MadeUp:
    """One region an image, whose feature is the `value`, or the brightness of its first pixel."""

    identity = "made-up"

    def __init__(self, value: float | None = None) -> None:
        self.value = value
        self.sizes: list[int] = []

    def pixels(self, image, where):
        return torch.from_numpy(np.array(decode(image, where))).permute(2, 0, 1)

    def __call__(self, pixels, given=None):
        self.sizes.append(len(pixels))
        values = [float(p[0, 0, 0]) if self.value is None else self.value for p in pixels]
        return [{"features": np.float32([[v]]), "boxes": np.float32([[0, 0, 1, 1]])} for v in values]


@pytest.fixture
def source(monkeypatch):
    made = MadeUp()
    monkeypatch.setattr(region_features, "_source", lambda _: made)
    return made


def sample(key, image):
    return {"key": key, "image": image, "meta": {"licence": "own"}}


@pytest.mark.parametrize(("dtype", "value"), [("float16", 65504.0), ("float32", 1e5)])
def test_features_are_stored_as_asked(source, photograph, dtype, value):
    source.value = value
    found = RegionFeatures("made-up", dtype=dtype)(sample("dog", photograph()))
    assert found["regions"]["features"].dtype == dtype
    assert (found["regions"]["features"] == value).all()
    assert found["meta"] == {"licence": "own", "backbone": "made-up"}


def test_distributions_are_stored_as_small(photograph):
    found = RegionFeatures("test_efficientnet", size=64, grid=2, scores=True)(sample("dog", photograph()))
    assert {name: values.dtype.name for name, values in found["regions"].items()} == {
        "features": "float16",
        "boxes": "float32",
        "classes": "int64",
        "confidence": "float32",
        "scores": "float16",
    }


def test_features_that_the_type_cannot_hold_are_refused(source, photograph):
    source.value = 1e5
    with pytest.raises(
        WorkbenchError, match=r"image 'dog': .* up to 1e\+05, more than float16 holds .*--dtype float32"
    ):
        RegionFeatures("made-up")(sample("dog", photograph()))
    source.value = float("nan")
    with pytest.raises(WorkbenchError, match="not finite"):
        RegionFeatures("made-up", dtype="float32")(sample("dog", photograph()))


def test_a_bad_image_stops_or_is_left_out(source, photograph):
    good = [sample(f"g{i}", photograph(seed=i, format="PNG")) for i in range(2)]
    mixed = [good[0], sample("cut", photograph()[:100]), sample("gif", photograph(format="GIF")), good[1]]
    found = RegionFeatures("made-up", on_error="skip").batch(mixed)
    assert found[1:3] == [Drop("undecodable image"), Drop("neither JPEG nor PNG nor WebP")]
    alone = RegionFeatures("made-up").batch(good)
    assert [f["regions"]["features"] for f in (found[0], found[3])] == [f["regions"]["features"] for f in alone]
    with pytest.raises(WorkbenchError, match=r"image 'cut': the image is damaged .* --on-error skip"):
        RegionFeatures("made-up").batch(mixed)


def test_each_of_named_media_has_its_regions(source, photograph):
    """One behind the other, with the medium of each; one that is damaged leaves the record out."""
    left, right = photograph(seed=1, format="PNG"), photograph(seed=2, format="PNG")
    both = {"key": "both", "media": {"left": left, "right": right}}
    found, alone, other = RegionFeatures("made-up").batch([both, sample("left", left), sample("right", right)])
    assert found["regions"]["medium"].tolist() == ["left", "right"]
    apart = [one["regions"]["features"][0] for one in (alone, other)]
    np.testing.assert_array_equal(found["regions"]["features"], apart)
    assert found["media"] == both["media"]
    cut = {"key": "cut", "media": {"left": left, "right": right[:100]}}
    assert RegionFeatures("made-up", on_error="skip").batch([cut]) == [Drop("undecodable image")]
    with pytest.raises(WorkbenchError, match=r"image 'cut', medium 'right': .* --on-error skip"):
        RegionFeatures("made-up").batch([cut])


def test_the_network_sees_batches_of_the_size_asked_for(source, photograph):
    samples = [sample(str(i), photograph(seed=i)) for i in range(5)]
    RegionFeatures("made-up", batch_size=2).batch(samples)
    assert source.sizes == [2, 2, 1]


def test_a_stage_gets_as_many_samples_as_it_wants(tmp_path):
    stage = RegionFeatures("made-up", batch_size=BLOCK + 1)
    assert Conversion(None, (stage,)).block == BLOCK + 1
    assert Conversion(None).block == BLOCK


def test_what_decides_nothing_but_the_time_may_change():
    one, other = RegionFeatures("made-up"), RegionFeatures("made-up", device="cuda", batch_size=64)
    assert one == other, "or a corpus that was begun on another machine would be refused"
    assert one != RegionFeatures("made-up", size=64)


@pytest.mark.parametrize(
    ("device", "half", "expected"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)]
)
def test_a_gpu_and_no_cpu_computes_in_half_precision(source, photograph, monkeypatch, device, half, expected):
    seen = []

    def autocast(kind, dtype, enabled):
        seen.append((kind, dtype, enabled))
        return nullcontext()

    monkeypatch.setattr(torch, "autocast", autocast)
    RegionFeatures("made-up", device=device, half=half)(sample("dog", photograph()))
    assert seen == [("cuda", torch.float16, expected)]


def test_what_a_backbone_says_in_half_precision_is_near_and_of_the_same_types(photograph):
    """As on a GPU; the processor knows bfloat16, which rounds more."""
    stage = RegionFeatures("test_efficientnet", size=64, grid=2, scores=True)
    full = stage(sample("dog", photograph()))["regions"]
    with torch.autocast("cpu", torch.bfloat16):
        half = stage(sample("dog", photograph()))["regions"]
    assert {name: values.dtype for name, values in half.items()} == {name: v.dtype for name, v in full.items()}
    spread = np.abs(full["features"]).max()
    assert np.abs(half["features"] - full["features"]).max() < 0.1 * spread


def test_captions_speak_of_the_boxes_they_were_written_of(photograph):
    """Their features come first; a caption as a whole is a mention of its box, next to the links that it has."""
    boxes = [[0.0, 0.0, 0.5, 0.5], [], [0.25, 0.0, 1.0, 1.0]]
    texts = {"captions": ["a dog", "no place", "the sea"], "caption_boxes": boxes}
    spans = [[[2, 5, "Q144", 1.0]], [], []]
    stage = RegionFeatures("test_efficientnet", size=64, grid=2, caption_boxes=True)
    found = stage({**sample("dog", photograph()), **texts, "caption_spans": spans})
    np.testing.assert_allclose(found["regions"]["boxes"][:2], [boxes[0], boxes[2]])
    assert len(found["regions"]["features"]) == 2 + 4
    assert found["caption_spans"] == [
        [[0, 5, "region:0", 1.0], [2, 5, "Q144", 1.0]],
        [],
        [[0, 7, "region:1", 1.0]],
    ]
    asked = {**sample("dog", photograph()), "questions": [{"question": "What?", "answers": ["a dog"]}]}
    assert len(stage(asked)["regions"]["features"]) == 4
    with pytest.raises(WorkbenchError, match=r"image 'dog' has captions without boxes, which --caption-boxes needs"):
        stage({**sample("dog", photograph()), "captions": ["a dog"]})

"""The stage that extracts region features, with a made-up backbone."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.stages import region_features
from pipelines.stages.region_features import RegionFeatures
from workbench.errors import WorkbenchError


class MadeUp:
    """As many features as an image has bytes, each of the `value`."""

    identity = "made-up"

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, images, places):
        features = [np.full((1, len(image)), self.value, np.float32) for image in images]
        return [{"features": f, "boxes": np.asarray([[0, 0, 1, 1]], np.float32)} for f in features]


def extracted(monkeypatch: pytest.MonkeyPatch, value: float, **options):
    monkeypatch.setattr(region_features, "_source", lambda _: MadeUp(value))
    return RegionFeatures("made-up", **options)({"key": "dog", "image": b"12", "meta": {"licence": "own"}})


@pytest.mark.parametrize(("dtype", "value"), [("float16", 65504.0), ("float32", 1e5)])
def test_features_are_stored_as_asked(monkeypatch, dtype, value):
    found = extracted(monkeypatch, value, dtype=dtype)
    assert found["regions"]["features"].dtype == dtype
    assert (found["regions"]["features"] == value).all()
    assert found["meta"] == {"licence": "own", "backbone": "made-up"}


def test_features_that_the_type_cannot_hold_are_refused(monkeypatch):
    with pytest.raises(
        WorkbenchError, match=r"image 'dog': .* up to 1e\+05, more than float16 holds .*--dtype float32"
    ):
        extracted(monkeypatch, 1e5)
    with pytest.raises(WorkbenchError, match="not finite"):
        extracted(monkeypatch, float("nan"), dtype="float32")

"""The image part `vision.clips`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.cases import ImageProcessorCase
from tests.contracts.material import make_samples
from vision.sequences.image_processors.clips import ClipsProcessor
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator

CASES = {
    "": ImageProcessorCase({"backbone": "made-up"}, {"seed": "every clip is read"}, needs="clips"),
    "every": ImageProcessorCase({"backbone": "made-up", "max_clips": 3, "every": 4}, needs="clips"),
}


def test_every_nth_clip_is_read() -> None:
    samples = make_samples(1)
    stored, found = samples[0]["clips"]["features"], set()
    for seed in range(20):
        read = ClipsProcessor("made-up", max_clips=2, every=3)(samples[0], generator(seed))["features"]
        step = next(n for n in (1, 2, 3) if np.array_equal(read, stored[::n][:2]))
        found.add(step)
    assert found == {1, 2, 3}
    np.testing.assert_array_equal(ClipsProcessor("made-up", every=3)(samples[0], None)["features"], stored)


def test_clips_of_another_backbone_are_refused() -> None:
    samples = make_samples(1)
    with pytest.raises(WorkbenchError, match="are of backbone 'made-up', but this model needs those of 'other'"):
        ClipsProcessor("other")(samples[0], None)

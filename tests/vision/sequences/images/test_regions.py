"""The image part `vision.regions`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.cases import ImageCase
from vision.images.boxes import WHOLE
from vision.objectives.mrfr import Mrfr
from vision.sequences.images.regions import Regions
from workbench.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

STORED = {"seed": "stored features are not augmented"}
CASES = {
    "": ImageCase({"backbone": "made-up"}, STORED, needs="regions"),
    "best": ImageCase({"backbone": "made-up", "max_regions": 3}, STORED, needs="regions"),
    "whole": ImageCase({"backbone": "made-up", "whole": "last"}, STORED, needs="regions"),
}


@pytest.mark.parametrize(("whole", "row"), [("first", 0), ("last", 5)])
def test_the_whole_image_is_the_mean_of_what_is_not_hidden(whole: str, row: int, samples: list[Sample]) -> None:
    fields = Regions("made-up", whole=whole)(samples[0], None)
    stored = samples[0]["regions"]
    assert fields["special"].nonzero()[0].tolist() == [row]
    assert tuple(fields["boxes"][row]) == WHOLE
    np.testing.assert_allclose(fields["features"][row], stored["features"].mean(0), rtol=1e-6)
    np.testing.assert_array_equal(np.delete(fields["features"], row, 0), stored["features"])
    objective = Mrfr(rate=0.5)
    objective.name = "mrfr"
    objective.corrupt([Sequence({"image": fields}, (0,))], Draws(0, "task", number=(0,)))
    image = fields
    left = ~image["masked"] & ~image["special"]
    assert 0 < left.sum() < 5
    assert not image["masked"][row]
    np.testing.assert_allclose(image["features"][row], image["features"][left].mean(0), rtol=1e-6)


def test_what_a_detector_said_stays_in_the_workers(samples: list[Sample]) -> None:
    samples[0]["regions"]["classes"] = np.arange(5)
    fields = Regions("made-up", max_regions=3)(samples[0], None)
    best = np.sort(np.argsort(-samples[0]["regions"]["confidence"])[:3])
    np.testing.assert_array_equal(fields["classes"], best)
    assert collate([Sequence({"image": fields}, (0,))]).streams["image"].fields.keys() == {"features", "boxes"}

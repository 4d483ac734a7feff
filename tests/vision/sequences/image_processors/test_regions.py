"""The image part `vision.regions`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.cases import ImageProcessorCase
from vision.images.boxes import WHOLE
from vision.objectives.mrfr import Mrfr
from vision.sequences.image_processors.regions import RegionsProcessor
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.image_stream import ImageStream
from workbench.sequences.sequence import Sample, Sequence

STORED = {"seed": "stored features are not augmented"}
CASES = {
    "": ImageProcessorCase({"backbone": "made-up"}, STORED, needs="regions"),
    "best": ImageProcessorCase({"backbone": "made-up", "max_regions": 3}, STORED, needs="regions"),
    "whole": ImageProcessorCase({"backbone": "made-up", "whole": "last"}, STORED, needs="regions"),
}


@pytest.mark.parametrize(("whole", "row"), [("first", 0), ("last", 5)])
def test_the_whole_image_is_the_mean_of_what_is_not_hidden(whole: str, row: int, samples: list[Sample]) -> None:
    fields = RegionsProcessor("made-up", whole=whole)(samples[0], None)
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
    fields = RegionsProcessor("made-up", max_regions=3)(samples[0], None)
    best = np.sort(np.argsort(-samples[0]["regions"]["confidence"])[:3])
    np.testing.assert_array_equal(fields["classes"], best)
    assert collate([Sequence({"image": fields}, (0,))]).streams["image"].fields.keys() == {"features", "boxes"}


def test_regions_of_named_media_are_read_by_their_names(samples: list[Sample]) -> None:
    """In the order that is asked for, each with its own rows; without names they are refused, for they are of several
    images."""
    sample = samples[0]
    number = len(sample["regions"]["boxes"])
    medium = np.array(["left", "right"])[np.arange(number) % 2]
    both = {**sample, "media": {"left": sample["image"], "right": sample["image"]}}
    both["regions"] = {**sample["regions"], "medium": medium}
    del both["image"]
    spec = {"image_processor": "vision.regions", "backbone": "made-up"}
    fields = ImageStream(spec, media=["right", "left"]).streams(both, np.random.default_rng(0))["image"]
    order = [*np.flatnonzero(medium == "right"), *np.flatnonzero(medium == "left")]
    np.testing.assert_array_equal(fields["features"], sample["regions"]["features"][order])
    assert fields["image_number"].tolist() == [0] * (medium == "right").sum() + [1] * (medium == "left").sum()
    with pytest.raises(WorkbenchError, match=r"of named media \(left, right\).*--media"):
        RegionsProcessor("made-up")(both, None)
    both["regions"]["medium"] = np.array(["left"] * number)
    with pytest.raises(WorkbenchError, match=r"regions.*prepare regions"):
        ImageStream(spec, media=["right"]).streams(both, np.random.default_rng(0))

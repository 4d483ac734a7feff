"""The image part `vision.region_pixels`, and what is hidden of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.cases import ImageProcessorCase
from vision.images.boxes import WHOLE
from vision.objectives._masked_regions import GREY
from vision.objectives.mrc import Mrc
from vision.sequences.image_processors.region_pixels import RegionPixelsProcessor
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Fields, Sample, Sequence

STORED = {"seed": "neither the square nor the regions are augmented"}
CASES = {
    "": ImageProcessorCase({"backbone": "made-up", "size": 8}, STORED, needs="regions"),
    "whole": ImageProcessorCase({"backbone": "made-up", "size": 8, "whole": "last"}, STORED, needs="regions"),
}


def hidden(fields: Fields, **options: float) -> Fields:
    fields["classes"] = np.zeros(len(fields["boxes"]), np.int64)
    objective = Mrc(3, **options)  # type: ignore[arg-type]
    objective.name = "mrc"
    objective.corrupt([Sequence({"image": fields}, (0,))], Draws(0, "task", number=(0,)))
    return fields


def test_pixels_in_the_boxes_of_hidden_rows_are_grey_and_no_others(samples: list[Sample]) -> None:
    fields = RegionPixelsProcessor("made-up", 32, whole="last")(samples[0], None)
    before = fields["pixels"].copy()
    after = hidden(fields, rate=0.4)
    assert 0 < after["masked"].sum() < 5
    inside = np.zeros((32, 32), bool)
    for left, top, right, bottom in after["boxes"][after["masked"]] * 32:
        inside[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
    assert (after["pixels"][0][:, inside] == GREY[:, 0]).all()
    np.testing.assert_array_equal(after["pixels"][0][:, ~inside], before[0][:, ~inside])
    assert not after["masked"][-1]
    assert tuple(after["boxes"][-1]) == WHOLE


def test_each_row_of_several_images_is_hidden_in_its_own(samples: list[Sample]) -> None:
    """Of patches, whose rows say which photograph they are of."""
    boxes = np.tile(np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]], np.float32), (2, 1))
    fields: Fields = {"pixels": np.zeros((2, 3, 8, 8), np.uint8), "boxes": boxes, "image_number": np.repeat([0, 1], 2)}
    fields["taken"] = np.array([True, True, True, False])
    after = hidden({**fields, "masked": np.zeros(4, np.bool_)}, rate=1.0)
    assert after["masked"].tolist() == [False, False, False, True]
    assert not after["pixels"][0].any()
    assert not after["pixels"][1][:, :, :4].any()
    assert (after["pixels"][1][:, :, 4:] == GREY).all()


def test_a_share_of_the_chosen_rows_keeps_its_pixels(samples: list[Sample]) -> None:
    fields = RegionPixelsProcessor("made-up", 32)(samples[0], None)
    before = fields["pixels"].copy()
    after = hidden(fields, rate=1.0, zero=0.0)
    assert after["taken"].all()
    assert not after["masked"].any()
    np.testing.assert_array_equal(after["pixels"], before)


def test_rows_of_other_images_are_refused(samples: list[Sample]) -> None:
    with pytest.raises(WorkbenchError, match=r"random = 0.5 uses the features of another image's rows.*allowed: 0"):
        hidden(RegionPixelsProcessor("made-up", 32)(samples[0], None), zero=0.5, random=0.5)


def test_images_are_picked_with_their_rows(samples: list[Sample]) -> None:
    part = RegionPixelsProcessor("made-up", 8)
    sequences = [Sequence({"image": part(sample, None)}, (i,)) for i, sample in enumerate(samples[:3])]
    batch = collate([sequences[0], Sequence({"text": {"input_ids": np.zeros(1, np.int64)}}, (9,)), *sequences[1:]])
    picked = batch.pick({"image": [3, 1, 0, 3]}).streams["image"]
    wanted = collate([sequences[2], sequences[0], sequences[2]]).streams["image"]
    assert picked.lengths == [5, 0, 5, 5]
    assert (picked.fields["pixels"] == wanted.fields["pixels"]).all()
    assert (picked.fields["first"] == wanted.fields["first"]).all()

"""The step `vision.visual_positions`."""

from __future__ import annotations

import numpy as np

from tests.contracts.cases import StepCase
from vision.sequences.steps.visual_positions import VisualPositions
from workbench.keyed import Draws
from workbench.sequences.sequence import Sequence, text_fields

CASE = StepCase(excused={"dropped": "it drops nothing"}, adds=("image.position_ids",))


def test_regions_share_a_position_and_the_last_ends_the_sequence() -> None:
    boxes = np.zeros((3, 4), np.float32)
    both = Sequence({"text": text_fields(np.arange(5)), "image": {"boxes": boxes}}, (0,))
    alone = Sequence({"text": text_fields(np.arange(5))}, (1,))
    VisualPositions()([both, alone], Draws(0, "task", number=(0,)))
    assert both.streams["image"]["position_ids"].tolist() == [5, 5, 6]
    assert alone.streams.keys() == {"text"}

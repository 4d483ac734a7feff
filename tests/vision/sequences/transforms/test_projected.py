"""The transform `vision.projected`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contracts.cases import TransformCase
from vision.sequences.transforms.projected import ProjectedTransform
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

CASE = TransformCase({"stream": "projected"}, {"dropped": "it drops nothing"}, adds=("projected",))
DRAWS = Draws(0, "transform", number=())


def made(special: list[bool] | None) -> Sequence:
    image: dict[str, Any] = {"boxes": np.zeros((3, 4), np.float32)}
    streams: dict[str, Any] = {"text": text_fields(np.arange(2))}
    if special is not None:
        streams["image"] = {**image, "special": np.array(special)}
    return Sequence(streams, (0,))


def test_rows_are_those_of_the_image_without_its_class_token() -> None:
    found = ProjectedTransform()([made([True, False, False]), made(None), made([False] * 3)], DRAWS)
    batch = collate(found)
    assert batch.streams["projected"].lengths == [2, 0, 3]
    assert batch.streams["projected"].fields["of"].tolist() == [1, 2, 3, 4, 5]
    assert set(found[0].alone("image").streams) == {"image", "projected"}
    assert set(found[0].alone("text").streams) == {"text"}


def test_a_stream_that_is_there_is_not_written_over() -> None:
    with pytest.raises(WorkbenchError, match="'text' already"):
        ProjectedTransform("text")([made([False] * 3)], DRAWS)


def test_special_rows_are_projected_where_they_are_asked_for() -> None:
    found = ProjectedTransform(special=True)([made([True, False, False])], DRAWS)
    assert collate(found).streams["projected"].fields["of"].tolist() == [0, 1, 2]

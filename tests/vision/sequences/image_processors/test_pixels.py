"""The image part `vision.pixels`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.contracts.cases import ImageProcessorCase
from vision.models.embeddings.grid import GridEmbedding
from vision.sequences.image_processors.pixels import PixelsProcessor
from workbench.core.errors import WorkbenchError

CASES = {
    "": ImageProcessorCase({"size": 8, "grid": 2, "crop_scale": 0.5}),
    "drawn": ImageProcessorCase({"size": 8, "grid": 2, "sample": 3}),
}


def test_drawn_rows_are_those_of_their_cells(photo: Callable[[int], bytes]) -> None:
    torch.manual_seed(0)
    processor = PixelsProcessor(64, 2, sample=3)
    embedding = GridEmbedding(8, "test_efficientnet", 64, 2, dropout=0.0).eval()
    rng = np.random.default_rng(0)
    for number in range(4):
        whole, drawn = (processor({"key": "a", "image": photo(number)}, each) for each in (None, rng))
        assert whole["cell"].tolist() == [0, 1, 2, 3]
        assert len(set(drawn["cell"].tolist())) == 3
        rows, some = (
            embedding({name: torch.from_numpy(np.concatenate([one[name], two[name]])) for name in one})
            for one, two in ((whole, whole), (whole | drawn, drawn))
        )
        torch.testing.assert_close(some[:3], rows[drawn["cell"]])
        torch.testing.assert_close(some[3:], rows[4 + drawn["cell"]])


def test_no_more_rows_than_there_are_can_be_drawn() -> None:
    with pytest.raises(WorkbenchError, match="sample = 5; allowed: up to the 4 rows"):
        PixelsProcessor(8, 2, sample=5)

"""Contrast with several positives, against a loop over the equation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.contracts.cases import ObjectiveCase
from vision.objectives.mil_nce import MilNce, MilNceHead
from workbench.core.errors import WorkbenchError

CONTRAST = {
    "seed": "nothing is drawn",
    "originals": "no row is changed",
    "additive": "the rivals of a pair are the other pairs",
    "no image": "a pair without an image is refused",
    "no labels": "every pair is counted",
}
FIRST = {"video": "image", "pool_text": "first", "pool_video": "first"}  # a row of each sequence is read
CASES = {
    "": ObjectiveCase(FIRST, CONTRAST, reads=("text", "image")),
    "last": ObjectiveCase(
        {**FIRST, "pool_video": "last", "negatives": "micro-batch"}, CONTRAST, reads=("text", "image")
    ),
}


def loop(text: Tensor, video: Tensor, ids: list[int]) -> float:
    total = 0.0
    for i in range(len(ids)):
        positive = sum(math.exp(text[j] @ video[i]) for j in range(len(ids)) if ids[j] == ids[i])
        negative = sum(math.exp(text[j] @ video[i]) for j in range(len(ids)) if ids[j] != ids[i])
        negative += sum(math.exp(text[i] @ video[j]) for j in range(len(ids)) if ids[j] != ids[i])
        total -= math.log(positive / (positive + negative))
    return total


@pytest.mark.parametrize("ids", [[1, 1, 2, 3, 3, 3], [1, 2, 3, 4, 5, 6], [1] * 6])
def test_the_loss_is_that_of_a_loop(ids: list[int]) -> None:
    torch.manual_seed(0)
    text, video = torch.randn(6, 4), torch.randn(6, 4)
    head = MilNceHead(MilNce())
    embedded = {"text": text, "video": video, "video_id": torch.tensor(ids)}
    parts = [head.loss(embedded, own).loss for own in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(float(sum(parts)), loop(text, video, ids), atol=1e-5, rtol=1e-5)


def test_one_stream_is_not_compared_with_itself() -> None:
    with pytest.raises(WorkbenchError, match="two different streams"):
        MilNce(text="video")

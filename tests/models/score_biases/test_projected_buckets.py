"""ProphetNet's buckets against the published formula; the network is compared with Hugging Face's in its family."""

from __future__ import annotations

import pytest
import torch

from workbench.core.errors import WorkbenchError
from workbench.models.attention.score_bias import QueryKeyGrid
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.layout import Layout
from workbench.models.score_biases.projected_buckets import ProjectedBucketsBias
from workbench.sequences.batch import Stream

EXCUSED = "it reads the rows that query, which only an attention has"


@torch.no_grad()
def test_a_bucket_has_a_number_of_each_querying_row() -> None:
    torch.manual_seed(0)
    bias = ProjectedBucketsBias(num_heads=3, head_size=4, num_buckets=4, max_distance=8)
    rows, offsets = torch.randn(5, 12), torch.tensor([0, 5])
    positions = torch.tensor([0, 1, 2, 3, 30])
    layout = Layout([5], offsets, {}, streams=(Stream({"position_ids": positions}, offsets, [5]),))
    attention = MultiHeadAttention(12, LayerOptions(3))
    index, q = torch.arange(5)[None], torch.randn(1, 3, 5, 4)
    found = bias.bound(attention, rows)(QueryKeyGrid(q, q, layout, layout, index, index, index, index, 0.5))
    numbers = (rows @ bias.project.weight.T + bias.project.bias).view(5, 4, 3)
    buckets = {0: 0, 1: 1, 2: 2, 3: 2, 27: 3, 28: 3, 29: 3, 30: 3}  # 2 + 2 log(d / 2) / log(4) from distance 2 on
    for i in range(5):
        for j in range(5):
            bucket = buckets[max(int(positions[i] - positions[j]), 0)]
            torch.testing.assert_close(found[0, :, i, j], numbers[i, bucket])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="a max_distance above 16"):
        ProjectedBucketsBias(2, 4, num_buckets=32, max_distance=16)
    bias = ProjectedBucketsBias(2, 4)
    with pytest.raises(WorkbenchError, match="remove inner_size"):
        bias.bound(MultiHeadAttention(8, LayerOptions(2)), torch.zeros(3, 10))

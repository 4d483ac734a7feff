"""ALiBi against its equation and the slopes that the paper prints."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import ScoreBiasCase
from workbench.models.attention.call import attend, use_kernel
from workbench.models.layout import Layout
from workbench.models.score_biases.alibi import AlibiBias, slopes_of

CASE = ScoreBiasCase()


def test_slopes() -> None:
    assert slopes_of(8) == [1 / 2**i for i in range(1, 9)]
    assert slopes_of(16) == pytest.approx([2 ** -(i / 2) for i in range(1, 17)])
    assert slopes_of(12) == pytest.approx(slopes_of(8) + slopes_of(16)[::2][:4])
    assert slopes_of(1) == [2**-8]


def test_scores_fall_with_the_distance() -> None:
    layout = Layout([4], torch.tensor([0, 4]), {"rank": torch.arange(4)})
    q, k, v = (torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(i)) for i in range(3))
    with use_kernel("dense"):
        _, weights = attend(q, k, v, layout, layout, score_bias=AlibiBias(2), need_weights=True)
    assert weights is not None
    for head, slope in enumerate((2**-4, 2**-8)):
        for i in range(4):
            scores = torch.tensor([float(q[i, head] @ k[j, head]) / 8**0.5 - slope * (i - j) for j in range(i + 1)])
            torch.testing.assert_close(weights[0][head, i, : i + 1], torch.softmax(scores, 0))

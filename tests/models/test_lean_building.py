"""Models without memory."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from workbench.parallel.lean_building import skeleton


class Holding(nn.Module):
    """A layer with a constant that is neither a parameter nor a buffer."""

    def __init__(self, listed: bool) -> None:
        super().__init__()
        self.line = nn.Linear(2, 2)
        constant = torch.ones(3)
        self.constants = [constant] if listed else constant


@pytest.mark.parametrize("listed", [False, True])
def test_a_tensor_that_is_no_buffer_has_its_numbers(listed: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        model = skeleton(lambda: nn.Sequential(Holding(listed)))
    held = model[0].constants
    assert (held[0] if listed else held).tolist() == [1.0] * 3
    assert not model[0].line.weight.is_meta
    assert "Holding: Holding.constants is a tensor, and neither a parameter nor a buffer" in caplog.text


def test_other_models_take_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    model = skeleton(lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    assert not caplog.text

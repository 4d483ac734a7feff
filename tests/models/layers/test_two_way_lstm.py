"""The layer `two_way_lstm`: equal to torch's LSTMs with projections, one in each direction."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.contracts.cases import LayerCase
from tests.models.conftest import stream
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.layers.two_way_lstm import TwoWayLstmLayer
from workbench.sequences.batch import Batch

_EXCUSED = {"attention": "it attends to nothing", "cache": "it reads from both ends"}
CASES = {
    "": LayerCase({"stream": "text"}, _EXCUSED),
    "projected": LayerCase({"stream": "text", "cells": 12, "residual": True}, _EXCUSED),
}
LENGTHS = [3, 0, 5, 1]


@pytest.mark.parametrize("cells", [None, 7])
@pytest.mark.parametrize("residual", [False, True])
def test_halves_are_torchs_lstms(cells: int | None, residual: bool) -> None:
    torch.manual_seed(0)
    made = TwoWayLstmLayer("text", {"text": 8}, cells=cells, residual=residual)
    rows = torch.randn(9, 8)
    found = made({"text": rows}, Context(Batch({"text": stream(LENGTHS)})))["text"].split(LENGTHS)
    theirs = [nn.LSTM(4, cells or 4, proj_size=4 if cells else 0) for _ in range(2)]
    for lstm, ours in zip(theirs, (made.ahead, made.back), strict=True):
        lstm.load_state_dict(ours.lstms[0].state_dict())
    for given, got in zip(rows.split(LENGTHS), found, strict=True):
        if len(given):
            ahead, back = theirs[0](given[:, :4])[0], theirs[1](given[:, 4:].flip(0))[0].flip(0)
            wanted = torch.cat([ahead, back], -1) + (given if residual else 0)
            torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-5)


def test_widths_that_cannot_be_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="allowed: even ones"):
        TwoWayLstmLayer("text", {"text": 7})
    with pytest.raises(WorkbenchError, match="allowed: more cells"):
        TwoWayLstmLayer("text", {"text": 8}, cells=4)

"""Rounded weights and inputs: equal to torch's own rounding, with straight gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.contracts.cases import AdapterCase
from workbench.models.adapters import QuantisedAdapter

ROUNDS = {"begins": "it rounds from the beginning", "merge": "in part: the rounding of inputs is lost"}
CASES = {"": AdapterCase(excused=ROUNDS), "weights": AdapterCase({"inputs": False}, {"begins": ROUNDS["begins"]})}


@pytest.mark.parametrize("bits", [4, 8])
def test_numbers_are_rounded_as_by_torch(bits: int) -> None:
    torch.manual_seed(0)
    values, top = torch.randn(5, 9), 2 ** (bits - 1) - 1
    adapter = QuantisedAdapter(nn.Linear(9, 4), bits=bits)
    scale = float(values.abs().max() / top)
    whole = torch.fake_quantize_per_tensor_affine(values, scale, 0, -top, top)
    torch.testing.assert_close(adapter.rounded(values, by_row=False), whole)
    scales, zeros = values.abs().amax(1) / top, torch.zeros(5, dtype=torch.int32)
    rows = torch.fake_quantize_per_channel_affine(values, scales, zeros, 0, -top, top)
    torch.testing.assert_close(adapter.rounded(values, by_row=True), rows)
    assert bool(torch.isfinite(adapter.rounded(torch.zeros(2, 3), by_row=True)).all())


def test_gradients_go_straight_through() -> None:
    linear, rows = nn.Linear(6, 3), torch.randn(4, 6, requires_grad=True)
    adapter = QuantisedAdapter(linear, scales="output")
    adapter(rows, linear(rows)).sum().backward()
    assert rows.grad is not None
    torch.testing.assert_close(rows.grad, adapter.weight().sum(0).expand(4, 6))

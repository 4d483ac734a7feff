"""Parameters that some optimizer, or some way of parallel training, cannot train are refused when a model is built."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from workbench.components.build_context import mark
from workbench.core.errors import WorkbenchError
from workbench.models.initialisation import check_parameters
from workbench.parallel.sharding import _make_contiguous


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.zeros(2, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.LazyLinear(3), "parameter 'weight' of LazyLinear has no size before the first forward pass"),
        (Complex(), "parameter 'phase' of Complex is complex"),
        (nn.Embedding(3, 2, sparse=True), "parameter 'weight' of Embedding has sparse gradients; set sparse=False"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(module: nn.Module, message: str) -> None:
    layer = mark(nn.Sequential(nn.Linear(2, 2), module), "model.layers[0]: layer 'mine'")
    with pytest.raises(WorkbenchError) as refused:
        check_parameters(nn.Sequential(nn.Embedding(3, 2), layer))
    assert str(refused.value).startswith(f"model.layers[0]: layer 'mine': {message}")


def test_what_is_divided_is_contiguous() -> None:
    values = torch.arange(6.0).view(2, 3)
    parameter = nn.Parameter(values.t())
    _make_contiguous([parameter])
    assert parameter.is_contiguous()
    assert parameter.tolist() == values.t().tolist()

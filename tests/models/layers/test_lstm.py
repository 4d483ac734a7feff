"""The layer `lstm`: equal to torch's on each sequence, its dropout, its states in pieces, and in generation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.contracts.cases import LayerCase
from tests.models.conftest import stream
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.layers.lstm import LstmLayer
from workbench.models.layers.two_way_lstm import TwoWayLstmLayer
from workbench.sequences.batch import Batch

_EXCUSED = {"attention": "it attends to nothing"}
CASES = {
    "": LayerCase({"stream": "text"}, _EXCUSED),
    "stack": LayerCase({"stream": "text", "depth": 2, "intermediate_size": 12}, _EXCUSED),
}
LENGTHS = [3, 0, 5, 1]
ROWS = torch.randn(9, 6, generator=torch.Generator().manual_seed(0))


def layer(**options: Any) -> LstmLayer:
    torch.manual_seed(0)
    return LstmLayer("text", {"text": 6}, **options)


def run(made: LstmLayer, rows: torch.Tensor = ROWS, lengths: list[int] = LENGTHS, **fields: torch.Tensor) -> Any:
    return made({"text": rows}, Context(Batch({"text": stream(lengths, **fields)})))["text"]


def theirs(made: LstmLayer, rows: torch.Tensor, masks: list[torch.Tensor]) -> torch.Tensor:
    """One sequence, through torch.nn.LSTM with masked matrices."""
    for lstm, mask in zip(made.lstms, masks, strict=True):
        assert isinstance(lstm, nn.LSTM)
        copied = nn.LSTM(lstm.input_size, lstm.hidden_size, bidirectional=lstm.bidirectional)
        copied.load_state_dict(lstm.state_dict())
        with torch.no_grad():
            for name, weight in copied.named_parameters():
                if name.startswith("weight_hh"):
                    weight *= mask
        rows = copied(rows)[0]
    return rows


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("stack", [{}, {"depth": 2, "intermediate_size": 8}])
def test_each_sequence_is_read_as_torch_reads_it(direction: Any, stack: Any) -> None:
    made = layer(direction=direction, **stack)
    found = run(made).split(LENGTHS)
    ones = [torch.ones(())] * len(made.lstms)
    for rows, ours in zip(ROWS.split(LENGTHS), found, strict=True):
        if len(rows):
            given = rows.flip(0) if direction == "backward" else rows
            wanted = theirs(made, given, ones)
            wanted = wanted.flip(0) if direction == "backward" else wanted
            torch.testing.assert_close(ours, wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("direction", ["forward", "both"])
def test_a_dropped_weight_is_left_out_for_all_rows(direction: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fixed mask it is torch's LSTM with masked matrices; the gradient of a masked weight is 0."""
    made = layer(direction=direction, weight_drop=0.5).train()
    (lstm,) = made.lstms
    mask = (torch.rand(lstm.weight_hh_l0.shape) < 0.5).float() * 2  # type: ignore[union-attr,arg-type]
    called = "workbench.models.layers.lstm.dropout"
    monkeypatch.setattr(called, lambda x, p, training: x * mask if training and p else x)
    found = run(made)
    for rows, ours in zip(ROWS.split(LENGTHS), found.split(LENGTHS), strict=True):
        if len(rows):
            torch.testing.assert_close(ours, theirs(made, rows, [mask]), atol=1e-6, rtol=1e-6)
    found.sum().backward()
    gradient = lstm.weight_hh_l0.grad  # type: ignore[union-attr]
    assert isinstance(gradient, torch.Tensor)
    assert not gradient[mask == 0].any()
    assert gradient[mask > 0].any()
    monkeypatch.undo()
    assert torch.equal(run(made.eval()), run(layer(direction=direction).eval()))


def test_a_sequence_has_one_mask_for_all_rows() -> None:
    made = layer(dropout=0.5, dropout_per="sequence").train()
    plain = run(layer())
    share = (run(made) / plain).round(decimals=3).split(LENGTHS)
    assert all(len(each.unique(dim=0)) <= 1 for each in share)
    assert {*torch.cat(share).unique().tolist()} == {0.0, 2.0}
    each = (run(layer(dropout=0.5).train()) / plain).round(decimals=3).split(LENGTHS)
    assert any(len(of.unique(dim=0)) > 1 for of in each)


@pytest.mark.parametrize(
    ("options", "fields", "said"),
    [
        ({"direction": "both"}, {"rank": torch.arange(9)}, "set direction: forward"),
        ({}, {"doc": torch.arange(9)}, "use a builder that makes a sequence for each text"),
        ({}, {"rank": -torch.arange(9)}, "read from right to left"),
        ({}, {"until": torch.zeros(9).long(), "branch": torch.ones(9).long()}, r"hidden from others \(until, branch\)"),
        ({"direction": "backward"}, {"anchor": torch.ones(9).long()}, r"hidden from others \(anchor\)"),
    ],
)
def test_rows_that_it_must_not_read_are_refused(options: Any, fields: Any, said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        run(layer(**options), **fields)


def test_a_rank_may_fall_from_one_sequence_to_the_next() -> None:
    rank = torch.cat([torch.arange(n) for n in LENGTHS])
    assert torch.equal(run(layer(), rank=rank), run(layer()))


@pytest.mark.parametrize("keeps", ["rows", "keys"])
@pytest.mark.parametrize("made", [layer(direction="both"), TwoWayLstmLayer("text", {"text": 6})])
def test_no_text_is_continued_backward(made: Any, keeps: Any) -> None:
    fields = {"input_ids": torch.tensor([1, 2, 3]), "position_ids": torch.tensor([0, 1, 0])}
    batch, rows = Batch({"text": stream([2, 1], **fields)}), {"text": torch.randn(3, 6)}
    first = Context(batch, cache=KVCache(keeps=keeps))
    made(rows, first)
    with pytest.raises(WorkbenchError, match="continues from a KV cache; set direction: forward"):
        made(rows, Context(batch, cache=first.updated_cache))


@pytest.mark.parametrize("options", [{"intermediate_size": 8}, {"inner_dropout": 0.1}])
def test_one_lstm_has_no_rows_between_two(options: Any) -> None:
    with pytest.raises(WorkbenchError, match="of the rows between two LSTMs, and depth is 1"):
        layer(**options)


def test_widths_of_two_directions_are_even() -> None:
    with pytest.raises(WorkbenchError, match=r"found \[7, 6\], allowed: even widths"):
        layer(direction="both", depth=2, intermediate_size=7)

"""Which sequences share a padded call on a CPU: padding is paid for only where it costs less than one more call."""

from __future__ import annotations

import torch

from workbench.models.attention.padded import GROUP_CALL, GROUP_SCORES, GROUP_WASTE, groups_of
from workbench.models.layout import Layout


def members(lengths: list[int]) -> list[tuple[int, int]]:
    """Sequences and width of each group."""
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    layout = Layout(lengths, offsets, {})
    return [tuple(group.queries.index.shape) for group in groups_of(layout, layout).groups]


def test_short_sequences_of_unlike_lengths_share_a_call() -> None:
    assert members([40, 9, 25, 1, 33]) == [(5, 40)]


def test_a_long_one_takes_no_short_one_along() -> None:
    assert members([512, 20, 500]) == [(2, 512), (1, 20)]


def test_padding_and_size_are_bounded() -> None:
    lengths = list(range(1, 600, 7))
    groups = members(lengths)
    assert sum(count for count, _ in groups) == len(lengths)
    waiting = sorted(lengths, reverse=True)
    for count, width in groups:
        inside, waiting = waiting[:count], waiting[count:]
        wasted = sum(width**2 - n**2 for n in inside if n < GROUP_WASTE * width)
        assert wasted <= GROUP_CALL
        assert count == 1 or count * width**2 <= GROUP_SCORES

"""The predicate against published patterns; `test_attention.py` holds every kernel to it on random integers."""

from __future__ import annotations

import torch

from workbench.models.attention.visibility import visible


def test_masks_stand_for_tokens_until_these_are_predicted() -> None:
    """MPNet: to predict the j-th permuted token is to see those before it, and the masks of itself and of the rest."""
    count = 5
    numbers = torch.arange(1, count + 1)
    keys = {
        "rank": torch.cat([torch.zeros(2), numbers, torch.zeros(count)]).long(),  # context, tokens, masks
        "until": torch.cat([torch.zeros(2), torch.zeros(count), numbers]).long(),
    }
    seen = visible({"rank": numbers - 1}, keys)
    assert seen is not None
    for j in range(1, count + 1):
        tokens, masks = [i < j for i in range(1, count + 1)], [i >= j for i in range(1, count + 1)]
        assert seen[j - 1].tolist() == [True, True, *tokens, *masks]


def test_queries_without_a_rank_see_what_is_hidden_later() -> None:
    seen = visible({}, {"until": torch.tensor([0, 1, 2])})
    assert seen is not None
    assert seen.tolist() == [[True, True, True]]


def test_nothing_said_means_all_visible() -> None:
    assert visible({}, {}) is None

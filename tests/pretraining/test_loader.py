"""How many processes load where the recipe does not say."""

from __future__ import annotations

import pytest
import torch

from workbench.core.processes import children as cores
from workbench.pretraining import loader as feed


@pytest.mark.parametrize(
    ("machine", "ranks", "device", "expected"),
    [
        (64, 1, "cuda", cores.MOST_LOADERS),
        (64, 8, "cuda", 7),
        (2, 1, "cuda", 1),
        (2, 8, "cuda", 1),
        (64, 1, "cpu", 1),
    ],
)
def test_the_machine_says(
    monkeypatch: pytest.MonkeyPatch, machine: int, ranks: int, device: str, expected: int
) -> None:
    monkeypatch.setattr(cores, "cores", lambda: machine)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    assert cores.loaders(torch.device(device)) == expected


@pytest.mark.parametrize(("asked", "expected"), [(None, 5), (0, 0), (3, 3)])
def test_the_recipe_is_obeyed(monkeypatch: pytest.MonkeyPatch, asked: int | None, expected: int) -> None:
    monkeypatch.setattr(feed, "loaders", lambda _: 5)
    made = feed.Feed([], num_workers=asked, device=torch.device("cpu"))
    assert (made.workers.number if made.workers is not None else 0) == expected

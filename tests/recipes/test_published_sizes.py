"""The sizes of a recipe have as many parameters as the paper or the released model says."""

from __future__ import annotations

import pytest
import torch

from workbench.models.network import Network
from workbench.recipe.reading import load_recipe

PUBLISHED = {  # size of the vocabulary, millions of parameters of the network without its heads
    "bert": (30522, 110),
    "bert-large": (30522, 340),
    "bert-wwm-large": (30522, 340),
    "roberta": (50265, 125),
    "roberta-large": (50265, 355),
    "albert": (30000, 12),
    "albert-large": (30000, 18),
    "albert-xlarge": (30000, 60),
    "albert-xxlarge": (30000, 223),  # the released model; the paper's table 1 says 235
    "spanbert": (28996, 110),
    "spanbert-large": (28996, 340),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(name: str) -> None:
    vocab_size, millions = PUBLISHED[name]
    with torch.device("meta"):
        network = Network(load_recipe(name).networks["main"], vocab_size=vocab_size)
    assert sum(parameter.numel() for parameter in network.parameters()) / 1e6 == pytest.approx(millions, rel=0.04)

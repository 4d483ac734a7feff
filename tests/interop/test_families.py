"""Families of checkpoints are found by the names that people write."""

from __future__ import annotations

import pytest

from workbench.components.building import short_names
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import family_of

OF_RECIPES = {
    **{name: name for name in ("bert", "roberta", "electra", "albert", "gpt", "bart", "t5", "xlnet", "xlm", "mpnet")},
    **{name: name for name in ("modernbert", "camembert", "distilbert", "mt5")},
    "xlm-roberta": "xlm_roberta",
    "deberta-v2": "deberta_v2",
    "gpt-2": "gpt2",
    "ernie-thu": "kg.ernie_thu",
    "k-bert": "kg.k_bert",
    "luke": "kg.luke",
    "clip": "vision.clip",
    "lxmert": "vision.lxmert",
    "uniter": "vision.uniter",
    "vilt": "vision.vilt",
    "visualbert": "vision.visual_bert",
}


@pytest.mark.parametrize("recipe", OF_RECIPES)
def test_a_family_is_called_as_its_recipe(recipe: str) -> None:
    assert family_of(recipe) == OF_RECIPES[recipe]


def test_every_family_is_found_with_and_without_its_package() -> None:
    for name in short_names("family"):
        assert family_of(name) == name
        assert family_of(name.replace("_", "-")) == name
        assert family_of(name.rpartition(".")[2]) == name
    assert family_of("mine:Family") == "mine:Family"


def test_an_unknown_one_is_reported() -> None:
    with pytest.raises(WorkbenchError, match=r"unknown family 'ernie-tuh'.*kg\.ernie_thu"):
        family_of("ernie-tuh")

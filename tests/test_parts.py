"""Parts are found by short name or import path, and their options checked against the signature."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench import parts
from workbench.errors import WorkbenchError
from workbench.models.layers.self import Self

SPEC = {"layer": "self", "stream": "text", "num_heads": 2}


def test_a_short_name_with_options_and_given_things() -> None:
    layer = parts.build("layer", SPEC, "model.layers[0]", sizes={"text": 8}, unrelated=3)
    assert isinstance(layer, Self)


def test_an_import_path() -> None:
    layer = parts.build("layer", {**SPEC, "layer": "workbench.models.layers.self:Self"}, sizes={"text": 8})
    assert isinstance(layer, Self)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": "sefl"}, r"unknown layer 'sefl'.*Did you mean 'self'"),
        ({"heads": 2}, r"unknown option 'heads' in model: layer 'self'.*'num_heads'"),
        ({"num_heads": "two"}, r"num_heads = 'two' is of type str; allowed: a whole number from 1, at most 1,024"),
        ({"layer": "nowhere:Layer"}, r"there is no module 'nowhere'"),
        ({"layer": "workbench.models.layers.self:Selv"}, r"unknown layer 'Selv'.*'Self'"),
    ],
)
def test_wrong_parts_get_one_clear_message(change: dict, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        parts.build("layer", {**SPEC, **change}, "model", sizes={"text": 8})


def test_a_missing_option_is_named() -> None:
    with pytest.raises(WorkbenchError, match="missing num_heads"):
        parts.build("layer", {"layer": "self", "stream": "text"}, sizes={"text": 8})


def test_a_part_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_test.py").write_text(
        "from torch import nn\n\nclass Scale(nn.Module):\n    def __init__(self, by: float = 1.0):\n"
        "        super().__init__()\n        self.by = by\n\n"
        "    def forward(self, hidden, context):\n        return hidden\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert parts.build("layer", {"layer": "mine_for_test:Scale", "by": 2}).by == 2


def test_a_part_whose_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more_for_test.py").write_text("import a_package_nobody_has\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(WorkbenchError, match="needs the package 'a_package_nobody_has'"):
        parts.find("layer", "needs_more_for_test:Layer")

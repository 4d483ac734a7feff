"""Keys that stand for several values."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from workbench.core.errors import WorkbenchError
from workbench.core.files.yaml_values import is_pattern, matching

TREE = {
    "vars": {"heads": 4},
    "model": {
        "streams": {"text": {"hidden_size": 8}, "image": {"hidden_size": 16}},
        "layers": [
            {"layer": "self", "heads": "${vars.heads}"},
            {"repeat": 2, "group": [{"heads": 2}, {"layer": "tap"}]},
        ],
    },
}


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("model.streams.*.hidden_size", ["model.streams.text.hidden_size", "model.streams.image.hidden_size"]),
        ("model.layers[*].heads", ["model.layers[0].heads"]),
        ("model.**.heads", ["model.layers[0].heads", "model.layers[1].group[0].heads"]),
        ("**.heads", ["vars.heads", "model.layers[0].heads", "model.layers[1].group[0].heads"]),
        ("model.layers[1].**.group[0].heads", ["model.layers[1].group[0].heads"]),
    ],
)
def test_a_pattern_stands_for_the_values_that_are_there(pattern: str, keys: list[str]) -> None:
    assert is_pattern(pattern)
    assert matching(OmegaConf.create(TREE), pattern) == keys


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("model.**.width", r"model\.\*\*\.width matches no value"),
        ("model.layers[*]", r"model\.layers\[\*\] names no value; a pattern ends with a name"),
        ("**", "names no value"),
    ],
)
def test_a_pattern_that_stands_for_nothing_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        matching(OmegaConf.create(TREE), pattern)


def test_a_plain_key_is_no_pattern() -> None:
    assert not is_pattern("model.layers[0].heads")

"""The layer `cross`."""

from __future__ import annotations

import pytest

from tests.contracts.cases import LayerCase
from workbench.errors import WorkbenchError
from workbench.parts.building import build

CASE = LayerCase({"stream": "text", "to": "image", "num_heads": 2})


def test_cross_attention_alone_has_no_distances() -> None:
    spec = {"layer": "cross", **CASE.options, "self_attention": False, "window": 2}
    with pytest.raises(WorkbenchError, match="self_attention is false"):
        build("layer", spec, "", sizes={"text": 16, "image": 16})

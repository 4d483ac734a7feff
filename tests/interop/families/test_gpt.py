"""GPT: norms behind the sublayers, feed-forward blocks of one width, an activation of another name."""

from __future__ import annotations

import pytest

from tests.contracts.cases import FamilyCase
from workbench.core.errors import WorkbenchError
from workbench.interop.families.gpt import Gpt
from workbench.interop.family import FamilyConfig

CONFIG = {
    "model_type": "openai-gpt",
    "vocab_size": 30,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 12,
}
CASES = {
    "": FamilyCase(config=CONFIG),
    "relu": FamilyCase(config={**CONFIG, "afn": "relu", "layer_norm_epsilon": 1e-6}),
}


def test_an_activation_that_we_lack_is_reported() -> None:
    with pytest.raises(WorkbenchError, match="unknown activation 'silu'"):
        Gpt().network(FamilyConfig({**CONFIG, "afn": "silu"}))

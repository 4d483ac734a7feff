"""mT5: T5 v1.1 under another name of the architecture."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_t5
from workbench.interop.families.mt5 import Mt5
from workbench.interop.family import FamilyConfig

CASE = FamilyCase(config={**test_t5.V1_1, "model_type": "mt5"})


def test_an_omitted_activation_is_the_library_s() -> None:
    stated = FamilyConfig({key: value for key, value in CASE.config.items() if key != "feed_forward_proj"})
    assert Mt5().network(Mt5().completed(stated, {})).layers[0]["activation"] == "geglu_tanh"

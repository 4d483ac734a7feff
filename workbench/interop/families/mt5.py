"""Hugging Face mT5 (Xue et al., arXiv:2010.11934): T5 v1.1 with another vocabulary.

Its code never scales the states from which words are predicted. Newer files have no key that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from workbench.interop.families.t5 import T5
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription

UNSCALED = {"scale_decoder_outputs": False}
GATED = {"feed_forward_proj": "gated-gelu"}
"""The activation of a configuration that states none."""


class Mt5(T5):
    """Hugging Face mT5: `text` and `target` streams, `self` and `cross` layers, as T5 v1.1; head span_corruption."""

    model_type = "mt5"

    def config(self, described: ModelDescription) -> dict[str, Any]:
        return {**super().config(described), **UNSCALED}

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        return super().completed(FamilyConfig({**GATED, **config, **UNSCALED}), state)

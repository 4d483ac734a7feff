"""Hugging Face SmolLM3: Llama, in which some layers (every fourth) have no positions."""

from __future__ import annotations

from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.interop.families.llama import Llama
from workbench.interop.families.modernbert import LOCAL, WHOLE
from workbench.interop.families.qwen2 import USED, Qwen2
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.recipe.spec import Spec

TURNED = "no_rope_layers"
"""The key of their list, which has 1 for a layer with rotary positions, and 0 for one without."""


class Smollm3(Qwen2):
    """Hugging Face SmolLM3: Llama's layers, some without rotary positions, a window in some; clm."""

    model_type = "smollm3"
    library = "SmolLM3"
    tokenizer_class = ""
    base = 2_000_000.0
    tied = True

    def layer(self, config: FamilyConfig, eps: float) -> Spec:
        return Llama.layer(self, config, eps)

    def layers(self, config: FamilyConfig) -> list[Spec]:
        plain: Spec = {"rotary": None, "rotary_scaling": None}
        own = zip(super().layers(config), self.turned(config), strict=True)
        return [{**layer, **({} if turned else plain)} for layer, turned in own]

    def turned(self, config: FamilyConfig) -> list[int]:
        """For each layer whether it has rotary positions."""
        count, every = config["num_hidden_layers"], config.get("no_rope_layer_interval", 4)
        turned = config.get(TURNED) or [int((number + 1) % every != 0) for number in range(count)]
        if len(turned) != count:
            raise WorkbenchError(f"{TURNED} = {turned}; allowed: {count} numbers, one for each layer")
        return list(turned)

    def kind(self, config: FamilyConfig, number: int) -> str:
        return LOCAL if config.get(USED) and not self.turned(config)[number] else WHOLE

    def config(self, described: ModelDescription) -> dict[str, Any]:
        turned = [int(layer["rotary"] is not None) for layer in described.layers[:-1]]
        return {**super().config(described), TURNED: turned}

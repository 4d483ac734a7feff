"""Hugging Face Qwen2 and Qwen2.5 (arXiv:2407.10671): Llama with biases of queries, keys and values."""

from __future__ import annotations

from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.interop.families.llama import Llama
from workbench.interop.families.mistral import WINDOW, rows_of, window_of
from workbench.interop.families.modernbert import LOCAL, WHOLE
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.recipe.spec import Spec

USED = "use_sliding_window"


class Qwen2(Llama):
    """Hugging Face Qwen2: Llama's layers with biases of queries, keys and values, a window in some; clm."""

    model_type = "qwen2"
    library = "Qwen2"
    tokenizer_class = "Qwen2Tokenizer"

    def layer(self, config: FamilyConfig, eps: float) -> Spec:
        return {**super().layer(config, eps), "bias": False, "attention_bias": False, "qkv_bias": True}

    def layers(self, config: FamilyConfig) -> list[Spec]:
        window = window_of(config[WINDOW]) if config.get(USED) else None
        return [{"window": window if kind == LOCAL else None} for kind in self.kinds(config)]

    def kinds(self, config: FamilyConfig) -> list[str]:
        """The kind of each layer: whether it has the window.

        Raises:
            WorkbenchError: a kind that no layer here has.
        """
        count = config["num_hidden_layers"]
        kinds = config.get("layer_types") or [self.kind(config, number) for number in range(count)]
        if len(kinds) != count or {*kinds} - {LOCAL, WHOLE}:
            raise WorkbenchError(f"layer_types = {kinds}; allowed: {count} of {LOCAL}, {WHOLE}")
        return list(kinds)

    def kind(self, config: FamilyConfig, number: int) -> str:
        """The kind of a layer where the configuration has no list of them."""
        return LOCAL if config.get(USED) and number >= config.get("max_window_layers", 28) else WHOLE

    def kv_heads(self, config: FamilyConfig) -> int:
        return int(config["num_key_value_heads"] or config["num_attention_heads"])

    def config(self, described: ModelDescription) -> dict[str, Any]:
        windows = [layer["window"] for layer in described.layers[:-1]]
        longest = next((window for window in windows if window is not None), None)
        return {
            **super().config(described),
            USED: longest is not None,
            WINDOW: rows_of(longest),
            "layer_types": [WHOLE if window is None else LOCAL for window in windows],
            "max_window_layers": len(windows),
        }

"""Hugging Face Mistral (Jiang et al., arXiv:2310.06825): Llama, in which each row may see a window of those before."""

from __future__ import annotations

from typing import Any

from workbench.interop.families.llama import Llama
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.recipe.spec import Spec

WINDOW = "sliding_window"


class Mistral(Llama):
    """Hugging Face Mistral: Llama's layers, with a window in all of them or in none; clm."""

    model_type = "mistral"
    library = "Mistral"

    def layers(self, config: FamilyConfig) -> list[Spec]:
        window = window_of(config.get(WINDOW))
        return [{"window": window} for _ in range(config["num_hidden_layers"])]

    def kv_heads(self, config: FamilyConfig) -> int:
        return int(config["num_key_value_heads"] or config["num_attention_heads"])

    def config(self, described: ModelDescription) -> dict[str, Any]:
        return {**super().config(described), WINDOW: rows_of(described.layers[0]["window"])}


def window_of(rows: int | None) -> int | None:
    """Our window, the greatest distance, for a number of rows that are seen, a row itself among them."""
    return None if rows is None else rows - 1


def rows_of(window: int | None) -> int | None:
    """The number of rows that are seen in our window."""
    return None if window is None else window + 1

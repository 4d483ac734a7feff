"""Hugging Face Longformer (Beltagy et al., arXiv:2004.05150): RoBERTa with a window in each layer, and projections of
their own for rows with global attention.

A folder does not say which rows these are: here the transform `everywhere` marks them, there the caller of a class
(`global_attention_mask`), or the class of a task does (classification: the first row).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from workbench.core.errors import WorkbenchError
from workbench.interop import bert_names
from workbench.interop.families.roberta import Roberta, heads_of
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Rule
from workbench.recipe.spec import NetworkSpec

OWN_ROWS = frozenset({"classify", "regression", "span_extraction", "multiple_choice"})
"""Objectives whose classes choose the rows with global attention themselves, by the task."""
GLOBAL = tuple(f"{name}_global" for name in bert_names.QKV)


class Longformer(Roberta):
    """Hugging Face Longformer: a `text` stream with `local_global` layers; head mlm."""

    model_type: ClassVar[str] = "longformer"
    library: ClassVar[str] = "Longformer"
    prefix = "longformer."
    task_heads = replace(heads_of("Longformer", "longformer"), without=OWN_ROWS)

    def network(self, config: FamilyConfig) -> NetworkSpec:
        usual = super().network(config)
        (layer,) = usual.layers
        of_all = {**layer, "layer": "local_global", "repeat": 1}
        usual.layers = [{**of_all, "window": window} for window in windows(config)]
        return usual

    def rules(self, config: FamilyConfig) -> list[Rule]:
        rules = super().rules(config)
        for i in range(config["num_hidden_layers"]):
            theirs = tuple(f"longformer.encoder.layer.{i}.attention.self.{name}" for name in GLOBAL)
            rules += bert_names.stacked(theirs, f"layers.{i}.attention.attention.everywhere.qkv")
        return rules

    def config(self, described: ModelDescription) -> dict[str, Any]:
        return {
            **super().config(described),
            "attention_window": [2 * (layer["window"] or 0) for layer in described.layers],
            "sep_token_id": 2,
        }


def windows(config: FamilyConfig) -> list[int]:
    """The rows to each side that a row of each layer attends to.

    Raises:
        WorkbenchError: a width that their classes refuse too, or not one for each layer.
    """
    stated, count = config.get("attention_window", 512), config["num_hidden_layers"]
    widths = [stated] * count if isinstance(stated, int) else list(stated)
    if len(widths) != count or any(width <= 0 or width % 2 for width in widths):
        raise WorkbenchError(f"attention_window = {stated}; allowed: an even number above 0, or {count} of them")
    return [width // 2 for width in widths]

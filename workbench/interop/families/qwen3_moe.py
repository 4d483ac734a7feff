"""Hugging Face Qwen3-MoE (arXiv:2505.09388): Qwen3, with experts as feed-forward networks."""

from __future__ import annotations

from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.interop.families.llama import Llama
from workbench.interop.families.mistral import WINDOW, window_of
from workbench.interop.families.mixtral import expert_rules
from workbench.interop.families.qwen2 import USED
from workbench.interop.families.qwen3 import Qwen3
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Rule
from workbench.recipe.spec import Spec


class Qwen3Moe(Qwen3):
    """Hugging Face Qwen3-MoE: Qwen3's layers with experts, of which each row is sent to a few; clm."""

    model_type = "qwen3_moe"
    library = "Qwen3Moe"

    def layer(self, config: FamilyConfig, eps: float) -> Spec:
        """
        Raises:
            WorkbenchError: some layers have no experts.
        """
        if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
            raise WorkbenchError(
                f"mlp_only_layers = {config.get('mlp_only_layers')}, decoder_sparse_step = "
                f"{config.get('decoder_sparse_step', 1)} of the configuration; allowed: experts in every layer ([], 1)"
            )
        experts = {
            "count": self.count(config),
            "top": config.get("num_experts_per_tok", 8),
            "size": config.get("moe_intermediate_size", 768),
            "normalised": bool(config.get("norm_topk_prob", False)),
        }
        return {**super().layer(config, eps), "experts": experts}

    def layers(self, config: FamilyConfig) -> list[Spec]:
        """The window, in all layers or in none: the library ignores `layer_types` and `max_window_layers` here."""
        window = window_of(config[WINDOW]) if config.get(USED) else None
        return [{"window": window} for _ in range(config["num_hidden_layers"])]

    def head_size(self, config: FamilyConfig) -> int:
        return Llama.head_size(self, config)

    def count(self, config: FamilyConfig) -> int:
        """The number of experts, which published configurations name otherwise than the library's newest version."""
        return int(config.get("num_experts") or config.get("num_local_experts") or 128)

    def feed_forward(self, config: FamilyConfig, theirs: str, ours: str) -> list[Rule]:
        return expert_rules((f"{theirs}.mlp", ("gate_proj", "up_proj"), "down_proj"), ours, self.count(config))

    def config(self, described: ModelDescription) -> dict[str, Any]:
        first = described.layers[0]
        written = super().config(described)
        for ignored in ("layer_types", "max_window_layers"):
            del written[ignored]
        return {
            **written,
            "num_experts": first["experts.count"],
            "num_experts_per_tok": first["experts.top"],
            "moe_intermediate_size": first["experts.size"] or first["intermediate_size"],
            "norm_topk_prob": first["experts.normalised"],
            "mlp_only_layers": [],
            "decoder_sparse_step": 1,
        }

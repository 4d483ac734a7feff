"""Hugging Face Mixtral (Jiang et al., arXiv:2401.04088): Mistral, with experts as feed-forward networks."""

from __future__ import annotations

from typing import Any

from workbench.interop.families.mistral import Mistral
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Rule, SameTensor, Stack
from workbench.recipe.spec import Spec


class Mixtral(Mistral):
    """Hugging Face Mixtral: Mistral's layers with experts, of which each row is sent to a few; clm."""

    model_type = "mixtral"
    library = "Mixtral"
    base = 1_000_000.0
    eps = 1e-5

    def layer(self, config: FamilyConfig, eps: float) -> Spec:
        experts = {"count": config.get("num_local_experts", 8), "top": config.get("num_experts_per_tok", 2)}
        return {**super().layer(config, eps), "experts": experts}

    def feed_forward(self, config: FamilyConfig, theirs: str, ours: str) -> list[Rule]:
        names = f"{theirs}.block_sparse_moe", ("w1", "w3"), "w2"
        return expert_rules(names, ours, config.get("num_local_experts", 8))

    def config(self, described: ModelDescription) -> dict[str, Any]:
        first = described.layers[0]
        return {
            **super().config(described),
            "num_local_experts": first["experts.count"],
            "num_experts_per_tok": first["experts.top"],
        }


def expert_rules(names: tuple[str, tuple[str, str], str], ours: str, count: int) -> list[Rule]:
    """The names of a network of experts.

    Args:
        names: of their module, of an expert's gate and value, and of its output.
        count: of the experts.
    """
    theirs, inner, outer = names
    each = [f"{theirs}.experts.{number}" for number in range(count)]
    return [
        SameTensor(f"{theirs}.gate.weight", f"{ours}.router.weight"),
        Stack(tuple(f"{one}.{name}.weight" for one in each for name in inner), f"{ours}.inner", blocks=count),
        Stack(tuple(f"{one}.{outer}.weight" for one in each), f"{ours}.outer", blocks=count),
    ]

"""Hugging Face Qwen3, the dense models (arXiv:2505.09388): norms of queries and keys, and heads of a size of their
own."""

from __future__ import annotations

from workbench.interop.families.llama import Llama
from workbench.interop.families.qwen2 import Qwen2
from workbench.interop.family import FamilyConfig
from workbench.recipe.spec import Spec


class Qwen3(Qwen2):
    """Hugging Face Qwen3: Llama's layers with norms of queries and keys, a window in some; clm."""

    model_type = "qwen3"
    library = "Qwen3"
    tokenizer_class = ""

    def layer(self, config: FamilyConfig, eps: float) -> Spec:
        return {**Llama.layer(self, config, eps), "bias": False, "qk_norm": True}

    def head_size(self, config: FamilyConfig) -> int:
        return int(config.get("head_dim") or 128)

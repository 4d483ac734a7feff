"""Hugging Face EuroBERT (Boizard et al., arXiv:2503.05500): Llama's layers, whose rows see the whole text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from workbench.interop.families.llama import Llama
from workbench.interop.family import TIED, FamilyConfig, token_head
from workbench.interop.rules import Rule, SameTensor
from workbench.recipe.spec import Spec
from workbench.sequences.text_layout import Visibility


class Eurobert(Llama):
    """Hugging Face EuroBERT: Llama's layers over a text that is seen as a whole; mlm."""

    model_type = "eurobert"
    library = "EuroBert"
    eps = 1e-5
    of_head: ClassVar[str] = "ForMaskedLM"

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        bias = bool(config.get("mlp_bias", False))
        return {"mlm": token_head({TIED: self.tied, **config}, "mlm", transform=None, bias=bias)}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        return [*super().rules(config), SameTensor("lm_head.bias", "mlm.bias")]

    def visibility(self, config: Mapping[str, Any]) -> Visibility:
        return "bidirectional"

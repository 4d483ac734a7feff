"""Hugging Face CamemBERT (Martin et al., arXiv:1911.03894): RoBERTa with another vocabulary."""

from __future__ import annotations

from workbench.interop.families.roberta import Roberta, heads_of


class Camembert(Roberta):
    """Hugging Face CamemBERT: a `text` stream with `self` layers, as RoBERTa; head mlm."""

    model_type = "camembert"
    library = "Camembert"
    task_heads = heads_of("Camembert")

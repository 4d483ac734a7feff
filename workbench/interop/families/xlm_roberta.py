"""Hugging Face XLM-RoBERTa (Conneau et al., arXiv:1911.02116): RoBERTa with another vocabulary."""

from __future__ import annotations

from workbench.interop.families.roberta import Roberta, heads_of


class XlmRoberta(Roberta):
    """Hugging Face XLM-RoBERTa: a `text` stream with `self` layers, as RoBERTa; head mlm."""

    model_type = "xlm-roberta"
    library = "XLMRoberta"
    task_heads = heads_of("XLMRoberta")

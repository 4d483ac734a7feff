"""Hugging Face mT5 (Xue et al., arXiv:2010.11934): T5 v1.1 with another vocabulary."""

from __future__ import annotations

from workbench.interop.families.t5 import T5


class Mt5(T5):
    """Hugging Face mT5: `text` and `target` streams, `self` and `cross` layers, as T5 v1.1; head span_corruption."""

    model_type = "mt5"

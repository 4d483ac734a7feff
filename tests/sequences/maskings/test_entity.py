"""The masking strategy `entity`."""

from __future__ import annotations

import numpy as np

from tests.contracts.cases import MaskingCase
from tests.contracts.material import selected
from workbench.sequences.maskings import EntityMasking
from workbench.sequences.sequence import Sequence, Span, text_fields

CASE = MaskingCase()


def test_without_knowledge_mentions_are_no_groups() -> None:
    sequence = Sequence({"text": text_fields(np.arange(12))}, (0,), "k", [Span(0, 6, "Q1"), Span(6, 12, "Q2")])
    sizes = {
        control: set(map(len, selected(EntityMasking(control), sequence, "text", 0.5, np.random.default_rng(0))))
        for control in (None, "no-kg")
    }
    assert sizes == {None: {6}, "no-kg": {1}}

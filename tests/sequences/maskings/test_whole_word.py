"""The masking strategy `whole_word`."""

from __future__ import annotations

from tests.contracts.cases import MaskingCase

CASE = MaskingCase()

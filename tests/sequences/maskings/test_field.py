"""The masking strategy `field`."""

from __future__ import annotations

from tests.contracts.cases import MaskingCase

CASE = MaskingCase()

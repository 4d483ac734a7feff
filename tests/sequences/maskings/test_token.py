"""The masking strategy `token`."""

from __future__ import annotations

from tests.contracts.cases import MaskingCase

CASE = MaskingCase()

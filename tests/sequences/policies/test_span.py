"""The policy `span`."""

from __future__ import annotations

from tests.contracts.cases import PolicyCase

CASE = PolicyCase()

"""Tokens as a panel shows them by what they have cost: the more bits, the darker."""

from __future__ import annotations

from workbench.report.html import escape
from workbench.report.run import Record, Run

DARKEST = 16.0
"""Bits from which on a token is not shown darker."""


def surprising(run: Run, example: Record) -> str:
    """The tokens of an example that has `tokens` and `bits`; the bits are shown on hovering."""
    shown = []
    for token, bits in zip(example["tokens"], example["bits"], strict=True):
        share = min(max(float(bits), 0.0), DARKEST) / DARKEST
        style = f"background:rgba(194,104,43,{0.75 * share:.2f})"
        shown.append(f'<span style="{style}" title="{float(bits):.1f} bits">{escape(token)}</span>')
    return f"<p>{' '.join(shown)}</p>"

"""Images that stand several times on a page: what all runs were asked of is in it once."""

from __future__ import annotations

import re
from collections import Counter

_IMAGE = re.compile(r'<img alt="([^"]*)" width="(\d+)" height="(\d+)" src="(data:[^"]+)">')
"""As `workbench.report.html.image` writes it."""


def each_once(body: str) -> str:
    """The same HTML, with every image that stands there several times kept in front and referred to."""
    counts = Counter(found[4] for found in _IMAGE.finditer(body))
    numbers: dict[str, int] = {}
    kept: list[str] = []

    def referred(found: re.Match[str]) -> str:
        alt, width, height, source = found.groups()
        if counts[source] == 1:
            return found[0]
        if source not in numbers:
            numbers[source] = len(numbers)
            kept.append(f'<image id="image-{numbers[source]}" width="{width}" height="{height}" href="{source}"/>')
        drawn = f'<use href="#image-{numbers[source]}"/>'
        return f'<svg class="image" role="img" aria-label="{alt}" viewBox="0 0 {width} {height}">{drawn}</svg>'

    body = _IMAGE.sub(referred, body)
    return f'<svg class="kept" aria-hidden="true"><defs>{"".join(kept)}</defs></svg>{body}' if kept else body

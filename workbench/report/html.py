"""Building blocks of HTML. Every text from data is escaped by `escape` here.

An image that occurs several times on a page is stored once. Tokens are shaded by their cost in bits.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.images import FAILURES, open_image, upright
from workbench.report.run import Record, Run

Cell = tuple[str, str]
"""A table cell: (CSS class, HTML)."""


def escape(value: Any) -> str:
    """Text as HTML, safe in content and in quoted attributes."""
    return html.escape(str(value), quote=True)


def section(title: str, body: str, note: str = "") -> str:
    """A titled block of a page; `title` and `note` are text, `body` is HTML."""
    line = f'<p class="note">{escape(note)}</p>' if note else ""
    return f'<section class="panel"><h3>{escape(title)}</h3>{line}{body}</section>'


def table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell]]]) -> str:
    """A table that scrolls sideways if it is too wide; `head` is text, each row is (CSS class, cells).

    The head of a column is aligned like its cells: words, or numbers (cells of class `n`).
    """
    rows = list(rows)
    columns = zip(*(cells for _, cells in rows), strict=True) if rows else ()
    words = [any(content for _, content in cells) and all(style != "n" for style, _ in cells) for cells in columns]
    sides = [' class="words"' if of else "" for of in words] or [""] * len(head)
    heads = "".join(f"<th{side}>{metric_name(name)}</th>" for side, name in zip(sides, head, strict=True))
    body = "".join(
        f'<tr class="{kind}">' + "".join(f'<td class="{style}">{content}</td>' for style, content in cells) + "</tr>"
        for kind, cells in rows
    )
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def metric_name(name: str) -> str:
    """A metric's name as a table's head shows it: `image_retrieval/r1` -> image retrieval / R@1."""
    spoken = re.sub(r"(^|/)r(\d+)$", r"\1R@\2", name).replace("_", " ")
    return escape(spoken).replace("/", " /&#8203; ")


def number(value: Any) -> str:
    """A number with four significant digits and separated thousands; other values are escaped."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return escape(value)
    if isinstance(value, int) or (abs(value) >= 1000 and value == round(value)):
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value != 0 and abs(value) < 0.001:
        return f"{value:.2e}"
    decimals = 4 if abs(value) < 1 else 3 if abs(value) < 10 else 2
    return f"{value:.{decimals}f}"


def decimals_of(values: Iterable[float | None]) -> int | None:
    """The number of decimals of a column, from its largest number. None, so that each number has its own, if all
    numbers are whole or some are too small."""
    known = [value for value in values if value is not None and value == value and abs(value) != float("inf")]
    if not known or all(value == round(value) for value in known):
        return None
    largest = max(map(abs, known))
    decimals = 4 if largest <= 1 else 3 if largest < 10 else 2 if largest < 1000 else 1
    small = any(0 < abs(value) < 0.5 * 10**-decimals for value in known)
    return None if small else decimals


def fixed(value: Any, decimals: int | None) -> str:
    """A number with these decimals and separated thousands; formatted by `number` if `decimals` is None."""
    if decimals is None or isinstance(value, bool) or not isinstance(value, int | float):
        return number(value)
    return f"{value:,.{decimals}f}"


def image(data: bytes, alt: str, where: str, side: int | None = None) -> str:
    """An inlined image.

    Args:
        where: the name for messages.
        side: the maximal side in pixels; larger photographs are shrunk (JPEG).

    Raises:
        WorkbenchError: it is no image.
    """
    try:
        with open_image(data) as opened:
            kind, (width, height) = str(opened.format).lower(), opened.size
            opened.load()
            if kind not in ("png", "jpeg") or (side is not None and max(opened.size) > side):
                smaller = upright(opened).convert("RGB")
                smaller.thumbnail((side or smaller.width, side or smaller.height))
                buffer = io.BytesIO()
                smaller.save(buffer, "JPEG", quality=88)
                data, kind, (width, height) = buffer.getvalue(), "jpeg", smaller.size
    except FAILURES as error:
        raise WorkbenchError(f"{where} is no image: {error}; take it out of the run, or draw it again") from error
    encoded = base64.b64encode(data).decode("ascii")
    return f'<img alt="{escape(alt)}" width="{width}" height="{height}" src="data:image/{kind};base64,{encoded}">'


_IMAGE = re.compile(r'<img alt="([^"]*)" width="(\d+)" height="(\d+)" src="(data:[^"]+)">')
"""An image as `image` writes it."""


def each_once(body: str) -> str:
    """The same HTML, where an image that occurs several times is stored once in front and referred to."""
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


DARKEST = 16.0
"""The number of bits of the darkest shade."""


def surprise_tokens(run: Run, example: Record) -> str:
    """The tokens of an example that has `tokens` and `bits`; the bits are shown on hovering."""
    shown = []
    for token, bits in zip(example["tokens"], example["bits"], strict=True):
        share = min(max(float(bits), 0.0), DARKEST) / DARKEST
        style = f"background:rgba(194,104,43,{0.75 * share:.2f})"
        shown.append(f'<span style="{style}" title="{float(bits):.1f} bits">{escape(token)}</span>')
    return f"<p>{' '.join(shown)}</p>"

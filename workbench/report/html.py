"""Small pieces of HTML. Every text that comes from data goes through `escape` here, and nowhere else raw."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.errors import WorkbenchError
from workbench.images import FAILURES, open_image, upright

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
    """A table that scrolls sideways where it is too wide; `head` is text, each row is (CSS class, cells).

    The head of a column of words stands on their side, and not on that of numbers (cells of class `n`).
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
    """A number with four digits that matter; thousands apart; anything else as it is."""
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
    """How many decimals the numbers of a column have, so that all have as many: those of the largest, none where all
    are whole. None, each its own, where some are too small for that."""
    known = [value for value in values if value is not None and value == value and abs(value) != float("inf")]
    if not known or all(value == round(value) for value in known):
        return None
    largest = max(map(abs, known))
    decimals = 4 if largest <= 1 else 3 if largest < 10 else 2 if largest < 1000 else 1
    small = any(0 < abs(value) < 0.5 * 10**-decimals for value in known)
    return None if small else decimals


def fixed(value: Any, decimals: int | None) -> str:
    """A number with so many decimals, thousands apart; as `number` has it where that is None."""
    if decimals is None or isinstance(value, bool) or not isinstance(value, int | float):
        return number(value)
    return f"{value:,.{decimals}f}"


def image(data: bytes, alt: str, where: str, side: int | None = None) -> str:
    """An inlined image.

    Args:
        where: what to call it in an error.
        side: shrinks large photographs to at most so many pixels (JPEG).

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

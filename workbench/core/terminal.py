"""What goes to the terminal: rich's console, and the log's plain lines, without control characters of other people.

A key, a text or a file's name may hold escape sequences, which clear the screen, set the window's title or write to
the clipboard. Everything is shown through here, where such characters become visible ones.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but tab and line feed
_DELETE = 0x7F


def visible(text: str) -> str:
    """The text with control characters as images (ESC is U+241B), those above ASCII as U+FFFD."""
    return _CONTROL.sub(_as_text, text)


def _as_text(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == _DELETE else "\ufffd"


class Terminal(Console):
    """A console that sends no control characters but its own; `:name:` in a text stays as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"emoji": False, **options})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if not segment.control and _CONTROL.search(segment.text):
                segment = Segment(visible(segment.text), segment.style)
            yield segment


class PlainFormatter(logging.Formatter):
    """Lines of a log for people, on a terminal or in a file."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))

"""Output to the terminal: rich's console and the log's plain lines, without foreign control characters.

A key, a text or a file's name may contain escape sequences, which clear the screen, set the window's title or write to
the clipboard. All output passes here, where such characters become visible ones. The local copy of a URL is printed as
the URL.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from workbench.core.local_copies import with_urls

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but tab and line feed
_DELETE = 0x7F


def visible(text: str) -> str:
    """The text with control characters replaced by their symbols (ESC by U+241B), or by U+FFFD above ASCII."""
    return _CONTROL.sub(_as_text, text)


def _as_text(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == _DELETE else "\ufffd"


class Terminal(Console):
    """A console that prints no control characters but its own; `:name:` in a text stays as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"emoji": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(with_urls(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if not segment.control and _CONTROL.search(segment.text):
                segment = Segment(visible(segment.text), segment.style)
            yield segment


class PlainFormatter(logging.Formatter):
    """A formatter of log lines for a terminal or a file."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(with_urls(super().format(record)))

"""An output of a notebook's cell that is replaced in place, and progress bars in one. Neither needs ipywidgets."""

from __future__ import annotations

import io
import time
from html import escape
from typing import Any

from rich.console import RenderableType
from rich.progress import Progress, ProgressColumn, TaskID

from workbench.core.terminal import Terminal

WIDTH = 100
SECONDS = 0.2
"""The time between two states of a bar that are shown."""


class LiveOutput:
    """One output of a cell: every `show` replaces the one before. Needs IPython, which every kernel of Python has."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str, plain: str) -> None:
        """Show HTML, or the plain text where a front end shows no HTML."""
        from IPython.display import display

        data = {"text/html": html, "text/plain": plain}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class ProgressBars(Progress):
    """rich's progress bars on stderr; in a notebook they are one live output.

    Args:
        transient: whether the bars are removed at the end.
    """

    def __init__(self, *columns: str | ProgressColumn, transient: bool = True, console: Terminal | None = None) -> None:
        shown = console or Terminal(stderr=True)
        super().__init__(*columns, console=shown, transient=transient, auto_refresh=not shown.is_jupyter)
        self._output = LiveOutput() if shown.is_jupyter else None
        self._shown_at = 0.0

    def start(self) -> None:
        if self._output is None:
            super().start()

    def stop(self) -> None:
        super().stop()
        self._show(last=True)

    def update(self, task_id: TaskID, **options: Any) -> None:
        super().update(task_id, **options)
        self._show()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._show()

    def _show(self, *, last: bool = False) -> None:
        if self._output is not None and (last or time.monotonic() - self._shown_at >= SECONDS):
            self._shown_at = time.monotonic()
            text = "" if last and self.live.transient else as_text(self.get_renderable())
            self._output.show(preformatted(text), text)


def as_text(renderable: RenderableType) -> str:
    """What a terminal without colours would show."""
    console = Terminal(file=io.StringIO(), force_jupyter=False, no_color=True, width=WIDTH)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def preformatted(text: str) -> str:
    """A text as HTML, with its line breaks; no text, no HTML."""
    return f"<pre>{escape(text)}</pre>" if text else ""

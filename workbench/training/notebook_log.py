"""The log of a run in a notebook: one output, with the losses as a table, instead of a box for each line."""

from __future__ import annotations

import logging
from html import escape

from workbench.core.html_table import html_of
from workbench.core.live_output import LiveOutput, preformatted
from workbench.runs.metric_tables import step_table
from workbench.runs.metrics_file import Record

LR = "lr"  # a number of every line of training
NUMBERS, TOTAL = "numbers", "total"
"""Attributes of the log record of a step: the numbers of the step, and the last step of the run."""


class NotebookLog(logging.Handler):
    """Shows the latest step, the table of losses, warnings, and the other lines folded away."""

    def __init__(self) -> None:
        super().__init__()
        self.output = LiveOutput()
        self.lines: list[str] = []
        self.warned: list[str] = []
        self.metrics: list[Record] = []
        self.state = self.bar = ""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            if (numbers := getattr(record, NUMBERS, None)) is not None:
                self.metrics.append(numbers)
                if LR in numbers or not self.state:  # the table has the held-out numbers
                    self.state = text
                self.bar = f'<progress max="{getattr(record, TOTAL)}" value="{numbers["step"]}"></progress> '
            else:
                (self.warned if record.levelno >= logging.WARNING else self.lines).append(text)
            self._show()
        except Exception:
            self.handleError(record)

    def _show(self) -> None:
        losses = html_of(step_table(self.metrics)) if self.metrics else ""
        folded = f"<details><summary>log</summary>{preformatted(chr(10).join(self.lines))}</details>"
        warned = "\n".join(self.warned)
        state = f"<p>{self.bar}{escape(self.state)}</p>"
        plain = "\n".join(filter(None, (warned, self.state or (self.lines or [""])[-1])))
        self.output.show(state + losses + preformatted(warned) + folded, plain)

"""Progress bars and tables in a notebook: one output that changes in place, without ipywidgets."""

from __future__ import annotations

import warnings
from io import StringIO
from pathlib import Path

import pytest
from rich.markup import escape
from rich.table import Table

import workbench.core.live_output
from pipelines.preparing.progress import ProgressBar
from tests.front_end import in_a_notebook
from workbench.core.html_table import html_of
from workbench.core.live_output import LiveOutput, ProgressBars
from workbench.core.local_copies import stands_for
from workbench.core.terminal import Terminal


@pytest.fixture(autouse=True)
def every_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench.core.live_output, "SECONDS", 0)


def test_an_output_is_replaced_in_place() -> None:
    with in_a_notebook() as outputs:
        output = LiveOutput()
        output.show("<b>1</b>", "1")
        output.show("<b>2</b>", "2")
    assert [(each.data, each.states) for each in outputs] == [({"text/html": "<b>2</b>", "text/plain": "2"}, 2)]


@pytest.mark.parametrize("transient", [False, True])
def test_bars_are_one_output_without_a_warning(transient: bool) -> None:
    with in_a_notebook() as outputs, warnings.catch_warnings(action="error"):
        with ProgressBars("{task.description} {task.completed}", transient=transient) as bars:
            bar = bars.add_task("<read>", total=3)
            for _ in range(3):
                bars.advance(bar)
        list(ProgressBars().track([1, 2], description="matching"))
    assert len(outputs) == 2
    assert outputs[0].states == 4
    shown = {"text/html": "<pre>&lt;read&gt; 3</pre>", "text/plain": "<read> 3"}
    assert outputs[0].data == ({"text/html": "", "text/plain": ""} if transient else shown)


def test_a_preparation_shows_its_bar_and_says_no_word_of_widgets() -> None:
    with in_a_notebook() as outputs, warnings.catch_warnings(action="error"):
        bar = ProgressBar("notes", Terminal(stderr=True))
        with bar:
            bar.say("reading")
            bar.add(12, 1)
    assert len(outputs) == 1
    assert "12 samples, 1 dropped, 1 shards" in outputs[0].data["text/plain"]


def test_bars_of_a_terminal_stay_as_they_were() -> None:
    file = StringIO()
    with ProgressBars("{task.description}", console=Terminal(file=file, force_terminal=True, width=40)) as bars:
        bars.add_task("reading", total=1)
    assert "reading" in file.getvalue()


def test_a_table_as_html() -> None:
    place = stands_for(Path("/cache/12/wiki"), "s3://bucket/wiki")
    table = Table(title=escape("a [b] <c>"), caption="beneath")
    table.add_column("")
    table.add_column("result", justify="right")
    table.add_row("[bold]loss[/]", "1 < 2")
    table.add_row(escape(str(place)), "\x1b[31m")
    html = html_of(table, table)
    assert html == 2 * html[: len(html) // 2]
    assert html.startswith("<p><b>a [b] &lt;c&gt;</b></p><table><thead><tr><th ")
    assert '<td style="text-align: left">loss</td><td style="text-align: right">1 &lt; 2</td>' in html
    assert "s3://bucket/wiki</td>" in html
    assert "\x1b" not in html
    assert html.endswith("<p><small>beneath</small></p>")

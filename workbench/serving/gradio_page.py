"""The page: a tab for each way in which at least one run can be asked, the answers of the runs side by side."""

from __future__ import annotations

import html
import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from workbench.components.building import SHIPPED
from workbench.components.trust import is_module
from workbench.core.errors import WorkbenchError
from workbench.serving.tab import STYLE, Served, Tab

logger = logging.getLogger(__name__)
PLAIN = "as it is"
PLACES = ("serving.tabs", "serving")


def tabs_of(runs: Sequence[Served]) -> list[Tab]:
    """The tabs of all packages that fit the runs.

    Raises:
        WorkbenchError: none does.
    """
    rooms = [next((f"{p}.{place}" for place in PLACES if is_module(f"{p}.{place}")), None) for p in SHIPPED]
    kinds: list[type[Tab]] = [kind for room in rooms if room for kind in importlib.import_module(room).TABS]
    tabs = [tab for kind in kinds for tab in kind.of(runs)]
    if not tabs:
        names = ", ".join(str(run.place) for run in runs)
        raise WorkbenchError(
            f"nothing on the page could ask {names}: there is no head of a task, no masked or next token, no "
            "attention, and no vectors of images and texts"
        )
    return tabs


def build_page(runs: Sequence[Served]) -> Any:
    """A `gradio.Blocks` about runs. It sends nothing to anybody.

    Raises:
        WorkbenchError: the runs can do nothing that a tab asks.
    """
    import gradio

    tabs = tabs_of(runs)
    with gradio.Blocks(title="Pretraining workbench", analytics_enabled=False, fill_width=True) as page:
        gradio.Markdown(f"## {', '.join(run.name for run in runs)}")
        for tab in tabs:
            with gradio.Tab(tab.name):
                _add(gradio, tab)
    return page


def _add(gradio: Any, tab: Tab) -> None:
    """The inputs, a button, and a column for each run."""
    asked = tab.inputs()
    controls = list(dict.fromkeys(control for run in tab.runs for control in run.controls))
    if controls:
        control = gradio.Radio([PLAIN, *controls], value=PLAIN, label="Asked", info="A control removes what it names.")
    else:
        control = gradio.State(PLAIN)
    button = gradio.Button("Ask", variant="primary")
    outputs = []
    with gradio.Row():
        for run in tab.runs:
            with gradio.Column(min_width=320):
                gradio.Markdown(f"**{run.name}** {html.escape(run.model.recipe.name)}")
                outputs.append(tab.output())
    button.click(_answering(gradio, tab), [control, *asked], outputs, api_name=False)


def _answering(gradio: Any, tab: Tab) -> Callable[..., Any]:
    """What a click calls. A run that does not have the chosen control shows nothing."""

    def answer(control: str, *asked: Any) -> Any:
        under = None if control == PLAIN else control
        try:
            found = [
                tab.answer(run, under, *asked) if under is None or under in run.controls else None for run in tab.runs
            ]
        except WorkbenchError as error:
            raise gradio.Error(str(error), print_exception=False) from error
        return found if len(found) > 1 else found[0]

    return answer


def serve_page(page: Any, port: int) -> None:
    """Serve a page on this machine until it is interrupted.

    Raises:
        WorkbenchError: the port is taken.
    """
    try:
        page.launch(server_name="127.0.0.1", server_port=port, share=False, quiet=True, css=STYLE, footer_links=[])
    except OSError as error:
        raise WorkbenchError(f"--port {port}: {error}; choose another one") from error

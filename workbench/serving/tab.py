"""What a tab of the page is, and the served runs that it asks."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from workbench.components.build_context import components_within
from workbench.components.controls import CONTROLS
from workbench.interop.run_or_checkpoint import load, name_at
from workbench.model_api import Model
from workbench.runs.names import is_run
from workbench.sequences.sequence import Sample

SHOWN = 8
"""Bars of one answer."""


@dataclass
class Served:
    """A run, or a checkpoint, that the page asks.

    Attributes:
        place: its folder, URL or package.
        trust: whether the code that it brings along may be run.
        controls: those that one of its components supports.
    """

    place: Path
    trust: bool = False
    controls: list[str] = field(init=False)
    _opened: dict[str | None, Model] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        model = self.under(None)
        parts = [part for task in model.tasks.values() for part in task.components]
        parts += components_within(model.torch)
        stated = {name for part in parts for name in getattr(part, "controls", ())}
        self.controls = [name for name in CONTROLS if name in stated and is_run(self.place)]

    @property
    def name(self) -> str:
        return name_at(self.place)

    @property
    def model(self) -> Model:
        return self.under(None)

    def under(self, control: str | None) -> Model:
        """The model under a control, which is opened once."""
        if control not in self._opened:
            self._opened[control] = Model(load(self.place, control=control, trust=self.trust), self.place)
        return self._opened[control]

    @property
    def reads_links(self) -> bool:
        return any(step.reads_spans for task in self.model.tasks.values() for step in task.transforms)

    def sample(self, text: str, control: str | None, **more: Any) -> Sample:
        """A text as a sample, with its links where the run reads them."""
        plain: Sample = {"text": text, **more}
        return self.model.link(plain)[0] if self.reads_links and control != "no-kg" else plain


class Tab(ABC):
    """One way to ask runs. A class of the list `TABS` in a package's `serving` or `serving.tabs` is a tab.

    Each method is called with gradio imported. The page shows the answers of the runs side by side.

    Attributes:
        title: what stands on the tab.
        runs: those that can be asked so.
    """

    title: ClassVar[str]

    @classmethod
    @abstractmethod
    def of(cls, runs: Sequence[Served]) -> list[Tab]:
        """The tabs of this kind for these runs: none where no run can be asked so."""

    runs: Sequence[Served]

    def __init__(self, runs: Sequence[Served]) -> None:
        self.runs = runs

    @property
    def name(self) -> str:
        return self.title

    @abstractmethod
    def inputs(self) -> list[Any]:
        """The components of gradio in which a user asks."""

    def output(self) -> Any:
        """The component that shows the answer of one run: by default HTML."""
        import gradio

        return gradio.HTML()

    @abstractmethod
    def answer(self, run: Served, control: str | None, *asked: Any) -> Any:
        """What a run answers, as the value of its output.

        Raises:
            WorkbenchError: what is asked makes no sense; the page shows the message.
        """


def bars(shares: Iterable[tuple[str, float]]) -> str:
    """Answers with their probabilities, the most probable first, as HTML."""
    best = sorted(shares, key=lambda pair: -pair[1])[:SHOWN]
    rows = [
        f'<div class="row"><span class="word">{html.escape(word)}</span><span class="track">'
        f'<span class="bar" style="width:{100 * share:.1f}%"></span></span><span class="share">{share:.3f}</span></div>'
        for word, share in best
    ]
    return f'<div class="bars">{"".join(rows)}</div>'


def marked(text: str, places: Iterable[tuple[int, int, Sequence[str]]]) -> str:
    """A text as HTML in which stretches (start, end, notes) are marked, with their notes below."""
    made, at = [], 0
    for start, end, notes in sorted(places, key=lambda place: place[:2]):
        if start < at:
            continue
        below = "".join(f'<span class="note">{html.escape(note)}</span>' for note in notes)
        made.append(html.escape(text[at:start]))
        made.append(f'<span class="mention"><mark>{html.escape(text[start:end])}</mark>{below}</span>')
        at = end
    return f'<div class="text">{"".join(made)}{html.escape(text[at:])}</div>'


STYLE = """
.bars .row {display: flex; gap: .6em; align-items: center; margin: .15em 0}
.bars .word {width: 11em; overflow-wrap: anywhere; text-align: right}
.bars .track {flex: 1; background: var(--background-fill-secondary); height: .8em; min-width: 4em}
.bars .bar {display: block; height: 100%; background: #d95f02}
.bars .share {width: 4em; font-variant-numeric: tabular-nums}
.text {line-height: 1.6; margin: .4em 0 .8em}
.text .mention {display: inline-flex; flex-direction: column; vertical-align: top; max-width: 16em}
.text mark {background: #fdd0a2; color: #222; padding: 0 .15em}
.text .note {font-size: .8em; border-left: 2px solid #d95f02; padding-left: .4em; margin-top: .2em}
"""

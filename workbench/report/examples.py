"""Sample predictions in panels. Images of examples are in the run's folder, with relative names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.report.html import escape, image, section
from workbench.report.run import Record, Run
from workbench.runs.names import EVALUATIONS, inside

MAX_EXAMPLES = 12
_SIDE = 360


def example_panel(
    run: Run, task: str, title: str, draw: Callable[[Run, Record], str], kind: str = "examples"
) -> str | None:
    """The first examples (or `failures`) of each of the run's results of a task; None if there are none."""
    blocks = []
    for result in run.evaluations:
        shown = (result.get(kind) or [])[:MAX_EXAMPLES] if result["task"] == task else []
        if shown:
            corpus = (result.get("inputs") or {}).get("corpus")
            place = corpus.get("path", "") if isinstance(corpus, dict) else str(corpus or "")
            control = f"evaluated with {result['control']}" if result.get("control") else ""
            name = ", ".join(filter(None, (Path(place).name, control)))
            body = "".join(f'<div class="example">{draw(run, example)}</div>' for example in shown)
            blocks.append(section(title, f'<div class="examples">{body}</div>', name))
    return "".join(blocks) or None


def save_example_image(run: Path, name: str, data: bytes) -> str:
    """Store an example's image (encoded bytes) in the run folder; returns the value of the example's `image`."""
    relative = Path(EVALUATIONS) / "images" / name
    (run / relative).parent.mkdir(parents=True, exist_ok=True)
    (run / relative).write_bytes(data)
    return relative.as_posix()


def example_image(run: Run, name: str, alt: str) -> str:
    """The image of an example, inlined.

    Raises:
        WorkbenchError: the name leaves the run folder, or there is no such file.
    """
    path = inside(run.folder, run.folder / name)
    if not path.is_file():
        raise WorkbenchError(f"{run.folder}: the example image {name!r} is missing; evaluate again")
    return image(path.read_bytes(), alt, str(path), side=_SIDE)


def marked(text: str, span: Any) -> str:
    """Text with the characters [start, end) marked, escaped; unmarked if there is no span."""
    return marked_all(text, [span[:2]] if span else [])


def marked_all(text: str, stretches: Iterable[Any]) -> str:
    """Text with the characters of each [start, end, name?] marked, escaped; a name is shown on hovering."""
    parts, done = [], 0
    for start, end, *name in sorted(stretches):
        title = f' title="{escape(name[0])}"' if name else ""
        parts.append(f"{escape(text[done:start])}<mark{title}>{escape(text[start:end])}</mark>")
        done = end
    return "".join([*parts, escape(text[done:])])


def verdict(text: Any, right: bool) -> str:
    """A prediction with a colour and a sign, so that it is readable without colour too."""
    return f'<span class="{"right" if right else "wrong"}">{"✓" if right else "✗"} {escape(text)}</span>'

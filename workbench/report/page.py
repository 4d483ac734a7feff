"""One self-contained HTML page: style, charts, images and one script are embedded; there are no external resources.

The script sorts tables and zooms charts. The page allows no other script: it names the checksum of this one.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.report.html import each_once, escape
from workbench.report.introduction import Chapter, opening
from workbench.report.panels import Panel, panels
from workbench.report.results import results
from workbench.report.run import Run
from workbench.report.seeds import by_seed, name_of

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{}'"


def render(runs: Sequence[Run], title: str = "", chapters: Sequence[Chapter] = ()) -> str:
    """The page about runs, as HTML; `chapters` precede the results."""
    own = resources.files("workbench.report")
    style, script = (own.joinpath(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    title = title or ", ".join(run.name for run in runs)
    groups = by_seed(runs)
    body = opening(chapters) + (results(runs) or "") + "".join(_group(group, i) for i, group in enumerate(groups))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(allowed)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f'<body><header><p class="kind">Pretraining report</p><h1>{escape(title)}</h1>{_contents(groups)}</header>'
        f"<main>{each_once(body)}</main><script>{script}</script></body></html>\n"
    )


def write_report(runs: Sequence[Run], path: Path, title: str = "", chapters: Sequence[Chapter] = ()) -> None:
    """Render the page and write it, completely or not at all."""
    write_text(path, render(runs, title, chapters))


def _contents(groups: Sequence[Sequence[Run]]) -> str:
    if len(groups) < 2:
        return ""
    links = "".join(f'<a href="#run-{i}">{escape(name_of(group))}</a>' for i, group in enumerate(groups))
    return f"<nav>{links}</nav>"


def _html(panel: Panel, run: Run) -> str:
    content = panel(run)
    if content is not None and not isinstance(content, str):
        name = f"{panel.__module__}:{panel.__qualname__}"
        raise WorkbenchError(
            f"{run.folder}: report panel {name!r} returned a {type(content).__name__}; allowed: HTML or None"
        )
    return content or ""


def _group(group: Sequence[Run], index: int) -> str:
    """A run, or the first of several seeds followed by the others in a folded section."""
    first, *others = map(_run, group)
    names = ", ".join(run.name for run in group[1:])
    behind = f"<details><summary>Other seeds: {escape(names)}</summary>{''.join(others)}</details>" if others else ""
    return f'<article id="run-{index}">{first}{behind}</article>'


def _run(run: Run) -> str:
    return f"<h2>{escape(run.name)}</h2>" + "".join(_html(panel, run) for panel in panels(run))

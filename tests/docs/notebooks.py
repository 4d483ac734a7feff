"""The notebooks of examples/notebooks: run, stored with their outputs, and shown as pages of docs/notebooks.

    python -m tests.docs.notebooks [NAME...]    (or `pages`: the pages alone, after a change of texts)

runs them (all of them by default), stores their outputs in them, and writes the pages. Printed texts, values, tables
and images are kept. Log lines, bars and warnings are not, as they have times and places of a machine.
"""

from __future__ import annotations

import copy
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
PAGES = ROOT / "docs" / "notebooks"
SECONDS = 600
"""A bound for a cell on a busy machine."""
LIVE = '<p><progress max="'
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
STATE = re.compile(r"  [\d,]+ tokens/s.*?(?=</p>|$)", re.MULTILINE)
DRAWN = "<pre"
STYLES = re.compile(r"<style.*?</style>", re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d.,:]*(?:e[-+]?\d+)?")
TAG = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)


def executed(path: Path, folder: Path) -> Any:
    """The notebook after it has run in a folder, on one core."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**environment, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    return notebook


def stored(notebook: Any) -> Any:
    """The notebook with the outputs that are kept."""
    kept = copy.deepcopy(notebook)
    for cell in kept.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_kept, cell.outputs) if output is not None]
    return kept


def _kept(output: Any) -> Any:
    """An output in its stored form; None for one that is not kept."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    html = output.data.get("text/html", "")
    if output.output_type == "error" or html.startswith(DRAWN):
        return None
    if html.startswith(LIVE):
        html = STATE.sub("", FOLDED.sub("", html))
    data = {"text/html": html} if html else dict(output.data)
    return type(output)({**output, "data": data, "metadata": {}})


def words(output: Any) -> str:
    """What an output says, without its numbers and its form. Another machine may have other numbers."""
    if output.output_type == "stream":
        text = output.text
    else:
        text = output.data.get("text/html") or output.data.get("text/plain", "")
        text = "" if "image/png" in output.data else TAG.sub(" ", text)
    return " ".join(NUMBER.sub(" ", text).split())


def page(path: Path, notebook: Any) -> str:
    """The page of a notebook."""
    title, _, rest = notebook.cells[0].source.partition("\n")
    note = f"*This page is the notebook `{path.relative_to(ROOT).as_posix()}`, with its stored outputs.*"
    blocks = [title, note, rest.strip()]
    for cell in notebook.cells[1:]:
        if cell.cell_type == "markdown":
            blocks.append(cell.source)
            continue
        blocks.append(f"```python\n{cell.source}\n```")
        blocks += map(_shown, cell.outputs)
    text = "\n\n".join(blocks).replace("](../../docs/", "](../").replace(".ipynb)", ".md)")
    return text.rstrip() + "\n"


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    if "text/html" in output.data:
        return "<div>" + re.sub(r"\s*\n\s*", "", STYLES.sub("", output.data["text/html"])) + "</div>"
    if "image/png" in output.data:
        return f'<img alt="the output of the cell" src="data:image/png;base64,{output.data["image/png"].strip()}">'
    return f"```text\n{output.data['text/plain'].rstrip()}\n```"


def main(names: list[str]) -> None:
    """Run notebooks, store them, and write their pages."""
    import nbformat

    PAGES.mkdir(exist_ok=True)
    for path in NOTEBOOKS:
        if names == ["pages"]:
            (PAGES / f"{path.stem}.md").write_text(page(path, nbformat.read(path, as_version=4)), "utf-8")
        elif not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                notebook = stored(executed(path, Path(folder)))
            nbformat.write(notebook, path)
            (PAGES / f"{path.stem}.md").write_text(page(path, notebook), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

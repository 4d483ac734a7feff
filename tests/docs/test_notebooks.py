"""The notebooks of examples/notebooks run within a minute of a core, and are stored as they run."""

from __future__ import annotations

import json
import re
import resource
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.docs.notebooks import NOTEBOOKS, PAGES, ROOT, executed, page, stored, words

MINUTE = 60
NEEDED = ("nbclient", "nbformat", "ipykernel")
missing = [name for name in NEEDED if find_spec(name) is None]
runs = pytest.mark.skipif(bool(missing), reason=f"not installed (the extra dev): {', '.join(missing)}")
REFRESH = "run: python -m tests.docs.notebooks"


class Tree(dict[str, Any]):
    """A JSON object whose keys are attributes, as nbformat reads it."""

    __getattr__ = dict.__getitem__


def read(path: Path) -> Any:
    """A notebook as nbformat reads it, whose texts are lists of lines in the file."""
    notebook = json.loads(path.read_text("utf-8"), object_hook=Tree)
    for cell in notebook.cells:
        for of in (cell, *(each for output in cell.get("outputs", []) for each in (output, output.get("data", {})))):
            of.update({name: "".join(value) for name, value in of.items() if name != "outputs" and type(value) is list})
    return notebook


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@runs
@pytest.mark.docs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_stored_as_it_runs(path: Path, tmp_path: Path) -> None:
    before = processor_seconds()
    notebook = executed(path, tmp_path)
    assert processor_seconds() - before < MINUTE
    said = [str(output) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [each for each in said if "ipywidgets" in each and "TqdmWarning" not in each]  # transformers' bar
    for cell, fresh in zip(read(path).cells, stored(notebook).cells, strict=True):
        outputs = [[words(output) for output in of.get("outputs", [])] for of in (cell, fresh)]
        assert outputs[0] == outputs[1], f"{path.name}, {cell['id']}: other words than those stored; {REFRESH}"


@runs
@pytest.mark.docs
def test_a_training_in_a_kernel_is_one_output(tmp_path: Path) -> None:
    """The kernel's front end replaces it in place: no box for a line, and none on stderr."""
    import nbformat

    code = [
        "import subprocess, sys, workbench",
        "subprocess.run([sys.executable, '-m', 'pipelines.demo', 'small-files'], check=True, capture_output=True)\n"
        "text = workbench.prepare_text('notes.txt', 'corpora/text')\n"
        "words = workbench.prepare('tokenizer', corpora=text, output='corpora/tokenizer.json', vocab_size=200)",
        "run = workbench.pretrain('tiny-text', 'runs/text', {'train.max_steps': 4, 'train.log_every': 1})",
    ]
    path = tmp_path / "training.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in code]), path)
    [_, prepared, trained] = [cell.outputs for cell in executed(path, tmp_path).cells]
    assert [output.output_type for output in prepared] == ["display_data"] * 2  # the bar, and the table
    assert [output.output_type for output in trained] == ["display_data"]
    assert trained[0].data["text/html"].count("<tr>") == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_names_no_place_of_a_machine(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text) < 50_000
    assert re.findall(r"/(?:home|tmp|root|work|Users)/[\w/.-]*", text) == []
    notebook = read(path)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.cells[0].cell_type == "markdown"
    assert "What they don't mean" in "".join(cell.source for cell in notebook.cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_its_page(path: Path) -> None:
    assert (PAGES / f"{path.stem}.md").read_text("utf-8") == page(path, read(path)), REFRESH


def test_there_are_four_notebooks_and_no_other_pages_of_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4
    assert {path.stem for path in PAGES.glob("*.md")} == {path.stem for path in NOTEBOOKS}
    linked = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("README.md", "python.md"))
    assert [path.stem for path in NOTEBOOKS if f"notebooks/{path.stem}.md" not in linked] == []

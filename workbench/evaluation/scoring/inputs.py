"""Texts that a command is given in a file, as samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import read_lines
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME
from workbench.sequences.sequence import Sample


def input_corpus(source: Path) -> Corpus | None:
    """What a command is given as INPUT: a corpus, or None for a text file, which can be opened then.

    Raises:
        WorkbenchError: it is neither, or the corpus is of triples.
    """
    if not (source / FILE_NAME).is_file():
        try:
            source.open("rb").close()
        except OSError as error:
            raise _unreadable(source, error) from error
        return None
    corpus = Corpus.open(source)
    if corpus.kind == "triples":
        raise WorkbenchError(f"{source} is a corpus of triples; give one of texts or of images")
    return corpus


def text_lines(source: Path) -> list[tuple[int, str]]:
    """The lines of a text file that are not blank, with their numbers, from 1.

    Raises:
        WorkbenchError: it cannot be read, or is not UTF-8.
    """
    try:
        lines = read_lines(source)
    except OSError as error:
        raise _unreadable(source, error) from error
    except UnicodeDecodeError as error:
        raise WorkbenchError(f"{source} is not UTF-8 at byte {error.start}; convert it first") from error
    return [(i, line) for i, line in enumerate(lines, 1) if line.strip()]


def _unreadable(source: Path, error: OSError) -> WorkbenchError:
    return WorkbenchError(f"{source}: {error.strerror}; INPUT is a text file or a corpus folder")


def text_samples(numbered: list[tuple[int, str]], size: int) -> Iterator[list[Sample]]:
    """A sample for each text, `size` at a time."""
    for start in range(0, len(numbered), size):
        yield [{"key": str(i), "draw": (0, 0, i), "text": text} for i, text in numbered[start : start + size]]

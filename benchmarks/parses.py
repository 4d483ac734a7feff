"""Texts parsed into dependency trees by spaCy, as CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spacy


def write_parses(text: Path, pipeline: Path, output: Path) -> None:
    """The sentences of the paragraphs (lines) of a text of WikiText, without headings.

    Args:
        pipeline: folder of a trained pipeline of spaCy, such as en_core_web_sm.
    """
    parser = spacy.load(pipeline, exclude=["ner", "lemmatizer"])
    paragraphs = (line.strip() for line in text.read_text("utf-8").splitlines())
    plain = (" ".join(_joined(line).split()) for line in paragraphs if line and not line.startswith("="))
    sentences = (conllu(sentence) for parsed in parser.pipe(plain) for sentence in parsed.sents)
    output.write_text("".join("\n".join(rows) + "\n\n" for rows in sentences), encoding="utf-8")


def _joined(line: str) -> str:
    """Hyphens and the marks in numbers, which WikiText sets apart, are part of their words again."""
    for mark in "-,.":
        line = line.replace(f" @{mark}@ ", mark)
    return line


def conllu(sentence: Any) -> Iterator[str]:
    """The lines of a sentence; heads count from its first word, 0 is the root."""
    for number, word in enumerate(sentence, start=1):
        head = 0 if word.head == word else word.head.i - sentence.start + 1
        after = "_" if word.whitespace_ else "SpaceAfter=No"
        yield "\t".join((str(number), word.text, "_", word.pos_, word.tag_, "_", str(head), word.dep_, "_", after))

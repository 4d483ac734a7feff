"""N-Triples (W3C 2014): lines `<subject> <predicate> <object> .`, for example a Wikidata or DBpedia dump."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import MalformedError, Peek, parse_text
from pipelines.readers.triples.statements import RdfReader, Statement
from pipelines.sources.files import files, lines

IRI, BLANK = r"[^<>\"{}|^`\x00-\x20]*", r"_:[^\s<>\"]+"
LITERAL = r'"(?P<text>(?:[^"\\\n\r]|\\.)*)"(?:@(?P<language>[A-Za-z0-9-]+)|\^\^<[^>]*>)?'
LINE = re.compile(
    rf"\s*(?:<(?P<subject>{IRI})>|(?P<blank>{BLANK}))\s*<(?P<predicate>[^<>\s]*)>"
    rf"\s*(?:<(?P<object>{IRI})>|(?P<other>{BLANK})|{LITERAL})\s*\.\s*(?:#.*)?"
)
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
PLAIN = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Ntriples(RdfReader):
    """Each line has a statement; see `RdfReader`."""

    suffixes: ClassVar[tuple[str, ...]] = (".nt",)

    @classmethod
    def detect(cls, source: Peek) -> bool:
        first = next((line for line in source.head if line.strip() and not line.lstrip().startswith("#")), "")
        return source.suffix == ".nt" or LINE.fullmatch(first) is not None

    def statements(self, paths: Sequence[Path]) -> Iterator[Statement | MalformedError]:
        for path in files(paths, self.suffixes):
            for number, line in lines(path):
                try:
                    match = LINE.fullmatch(line.decode())
                except UnicodeDecodeError:
                    match = None
                if match is not None:
                    yield _statement(match)
                elif line.strip() and not line.lstrip().startswith(b"#"):
                    yield _malformed(line, f"{path.name}:{number}")


def unescape(text: str) -> str:
    r"""A literal without its escapes (`\n`, `\"`, `\u00e9`, ...)."""

    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else PLAIN.get(match[3], match[3])

    return ESCAPE.sub(character, text) if "\\" in text else text


def _statement(match: re.Match[str]) -> Statement:
    subject, blank, predicate, node, other, text, language = match.groups()
    value = other if node is None else node
    of_node = value is not None
    names = (blank if subject is None else subject), predicate, (value if of_node else text)
    if "\\" in match[0]:
        first, second, third = map(unescape, names)
        return Statement(first, second, third, of_node, language)
    return Statement(*names, of_node, language)


def _malformed(line: bytes, where: str) -> MalformedError:
    try:
        return MalformedError("not an N-Triples statement", where, repr(parse_text(line, where)[:80]))
    except MalformedError as error:
        return error

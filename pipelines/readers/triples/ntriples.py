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

NODE = r"<[^<>\"{}|^`\\\x00-\x20]*>|_:[^\s<>\"]+"
LITERAL = r'"(?P<text>(?:[^"\\\n\r]|\\.)*)"(?:@(?P<language>[A-Za-z0-9-]+)|\^\^<[^>]*>)?'
LINE = re.compile(rf"\s*(?P<s>{NODE})\s*(?P<p><[^<>\s]*>)\s*(?:(?P<o>{NODE})|{LITERAL})\s*\.\s*(?:#.*)?")
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
PLAIN = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Ntriples(RdfReader):
    """A statement a line; see `RdfReader`."""

    suffixes: ClassVar[tuple[str, ...]] = (".nt",)

    @classmethod
    def detect(cls, source: Peek) -> bool:
        first = next((line for line in source.head if line.strip() and not line.lstrip().startswith("#")), "")
        return source.suffix == ".nt" or LINE.fullmatch(first) is not None

    def statements(self, paths: Sequence[Path]) -> Iterator[Statement | MalformedError]:
        for path in files(paths, self.suffixes):
            for number, line in lines(path):
                if line.strip() and not line.lstrip().startswith(b"#"):
                    yield _statement(line, f"{path.name}:{number}")


def unescape(text: str) -> str:
    r"""A literal without its escapes (`\n`, `\"`, `\u00e9`, ...)."""

    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else PLAIN.get(match[3], match[3])

    return ESCAPE.sub(character, text) if "\\" in text else text


def _statement(line: bytes, where: str) -> Statement | MalformedError:
    try:
        text = parse_text(line, where)
    except MalformedError as error:
        return error
    match = LINE.fullmatch(text)
    if match is None:
        return MalformedError("not an N-Triples statement", where, repr(text[:80]))
    node = match["o"] is not None
    value = _name(match["o"]) if node else unescape(match["text"])
    return Statement(_name(match["s"]), _name(match["p"]), value, node, match["language"])


def _name(node: str) -> str:
    return unescape(node[1:-1]) if node.startswith("<") else node

"""N-Triples (W3C 2014): lines `<subject> <predicate> <object> .`, for example a Wikidata or DBpedia dump."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.reader import MalformedError, Peek
from pipelines.readers.triples.graph import GraphReader, Triple
from pipelines.readers.triples.texts import TextRows, Texts, rows_of_files
from pipelines.sources.files import decode, files, lines
from workbench.options.bounds import Name

NODE = r"<[^<>\"{}|^`\\\x00-\x20]*>|_:[^\s<>\"]+"
LITERAL = r'"(?P<text>(?:[^"\\\n\r]|\\.)*)"(?:@(?P<language>[A-Za-z0-9-]+)|\^\^<[^>]*>)?'
LINE = re.compile(rf"\s*(?P<s>{NODE})\s*(?P<p><[^<>\s]*>)\s*(?:(?P<o>{NODE})|{LITERAL})\s*\.\s*(?:#.*)?")
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
PLAIN = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
TEXTS = {
    "http://www.w3.org/2000/01/rdf-schema#label": "label",
    "http://www.w3.org/2004/02/skos/core#prefLabel": "label",
    "http://www.w3.org/2004/02/skos/core#altLabel": "aliases",
    "http://schema.org/description": "description",
    "http://www.w3.org/2000/01/rdf-schema#comment": "description",
}
WIKIDATA = ["http://www.wikidata.org/entity/", "http://www.wikidata.org/prop/direct/"]


@dataclass(frozen=True)
class Ntriples(GraphReader):
    """Links between nodes are the graph; labels, alternative labels and descriptions in `language` are its texts.

    Other literals (dates, numbers) are not read. `rdf:type` gives an entity's types. `prefixes` are cut off the ids.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".nt",)

    language: Name = "en"
    prefixes: list[Name] = field(default_factory=lambda: list(WIKIDATA))

    @classmethod
    def detect(cls, source: Peek) -> bool:
        first = next((line for line in source.head if line.strip() and not line.lstrip().startswith("#")), "")
        return source.suffix == ".nt" or LINE.fullmatch(first) is not None

    def triples(self, paths: Sequence[Path]) -> Iterator[Triple]:
        for match in self._statements(paths):
            if match["o"] is not None and match["p"][1:-1] != RDF_TYPE:
                yield self._id(match["s"]), self._id(match["p"]), self._id(match["o"])

    def texts(self, paths: Sequence[Path]) -> Texts:
        rows: dict[str, dict[str, Any]] = {}
        for match in self._statements(paths):
            predicate = match["p"][1:-1]
            if match["o"] is not None:
                if predicate == RDF_TYPE:
                    rows.setdefault(self._id(match["s"]), {}).setdefault("types", []).append(self._id(match["o"]))
            elif predicate in TEXTS and match["language"] in (None, self.language):
                _add(rows.setdefault(self._id(match["s"]), {}), TEXTS[predicate], unescape(match["text"]))
        named = ([*self.entities, *self.types], self.relations, self.type_names)
        return Texts(*(TextRows(chain(rows.items(), rows_of_files(paths))) for paths in named))

    def _statements(self, paths: Sequence[Path]) -> Iterator[re.Match[str]]:
        for path in files(paths, self.suffixes):
            for number, line in lines(path):
                where = f"{path.name}:{number}"
                text = decode(line, where)
                if not text.strip() or text.lstrip().startswith("#"):
                    continue
                match = LINE.fullmatch(text)
                if match is None:
                    raise MalformedError("not an N-Triples statement", where, repr(text[:80]))
                yield match

    def _id(self, node: str) -> str:
        name = unescape(node[1:-1]) if node.startswith("<") else node
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        return name


def unescape(text: str) -> str:
    r"""A literal without its escapes (`\n`, `\"`, `\u00e9`, ...)."""

    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else PLAIN.get(match[3], match[3])

    return ESCAPE.sub(character, text) if "\\" in text else text


def _add(row: dict[str, Any], field_name: str, text: str) -> None:
    if field_name == "aliases":
        row.setdefault("aliases", []).append(text)
    else:
        row.setdefault(field_name, text)

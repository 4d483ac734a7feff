"""Base class of the RDF formats: links between nodes are the graph, and some literals are its texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pipelines.readers.reader import Drop, MalformedError
from pipelines.readers.triples.graph import Found, GraphReader
from pipelines.readers.triples.texts import EntityTexts, Row, StatedTexts, TextRows, rows_of_files
from workbench.core.options.bounds import Name

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
FREEBASE_TYPE = "http://rdf.freebase.com/ns/type.object.type"
INSTANCE_OF = "http://www.wikidata.org/prop/direct/P31"
TEXTS = {
    "http://www.w3.org/2000/01/rdf-schema#label": "label",
    "http://www.w3.org/2004/02/skos/core#prefLabel": "label",
    "http://www.w3.org/2004/02/skos/core#altLabel": "aliases",
    "http://schema.org/description": "description",
    "http://www.w3.org/2000/01/rdf-schema#comment": "description",
    "http://rdf.freebase.com/ns/type.object.name": "label",
    "http://rdf.freebase.com/ns/common.topic.alias": "aliases",
    "http://rdf.freebase.com/ns/common.topic.description": "description",
}
ANY_LANGUAGE = "mul"
"""The language of a Wikidata label for all languages without their own."""
PREFIXES = [
    "http://www.wikidata.org/entity/",
    "http://www.wikidata.org/prop/direct/",
    "http://rdf.freebase.com/ns/",
]


class Statement(NamedTuple):
    """Names without brackets; `node` says whether the object is a node, or else a literal, perhaps with a language."""

    subject: str
    predicate: str
    object: str
    node: bool
    language: str | None = None


@dataclass(frozen=True)
class RdfReader(GraphReader):
    """Labels, alternative labels and descriptions in `language` are texts; other literals (dates, numbers) are counted.

    `rdf:type`, Freebase's `type.object.type` and Wikidata's P31 list an entity's types; P31 is a link as well.
    `prefixes` are cut off the ids. `foreign: false` drops links and types with a name that has none of the prefixes (in
    Wikidata's truthy
    statements: images, web pages, unknown values).
    """

    language: Name = "en"
    prefixes: list[Name] = field(default_factory=lambda: list(PREFIXES))
    foreign: bool = True

    def statements(self, paths: Sequence[Path]) -> Iterator[Statement | MalformedError]:
        """All statements, in the order of the input."""
        raise NotImplementedError(f"{type(self).__name__} must define statements")

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        for found in self.statements(paths):
            if isinstance(found, MalformedError):
                yield found
            elif found.node:
                yield from self._of_link(found)
            elif found.predicate not in TEXTS:
                yield Drop("a value that is no text")
            elif found.language in (None, self.language, ANY_LANGUAGE):
                fallback = found.language == ANY_LANGUAGE != self.language
                yield StatedTexts(self._id(found.subject), TEXTS[found.predicate], found.object, fallback)

    def texts(self, paths: Sequence[Path], said: Iterable[tuple[str, Row]]) -> EntityTexts:
        """The texts of the statements, overridden by the named files; relations and types are nodes as well."""
        entities = TextRows(rows_of_files([*self.entities, *self.types]), first=said)
        return EntityTexts(entities, *(TextRows(rows_of_files(f), entities) for f in (self.relations, self.type_names)))

    def _of_link(self, found: Statement) -> Iterator[Found]:
        """The triple of a link, unless it only states a type, and the type."""
        subject, predicate, name = self._id(found.subject), self._id(found.predicate), self._id(found.object)
        if found.predicate in (RDF_TYPE, FREEBASE_TYPE, INSTANCE_OF) and (self.foreign or self._is_own(found.object)):
            yield StatedTexts(subject, "types", name)
        if found.predicate not in (RDF_TYPE, FREEBASE_TYPE):
            own = self.foreign or all(map(self._is_own, found[:3]))
            yield (subject, predicate, name) if own else Drop("a link with a foreign name")

    def _is_own(self, name: str) -> bool:
        return name.startswith(tuple(self.prefixes))

    def _id(self, name: str) -> str:
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        return name

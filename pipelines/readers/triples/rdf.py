"""Turtle, N3 and RDF/XML (W3C 2014), read by rdflib."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import orjson

from pipelines.readers.reader import MalformedError
from pipelines.readers.triples.statements import RdfReader, Statement
from pipelines.sources.files import files, open_bytes, plain_suffix, stem
from workbench.core.errors import WorkbenchError

SYNTAXES = {".ttl": "turtle", ".n3": "n3", ".rdf": "xml", ".owl": "xml"}
"""Suffixes, and rdflib's names of the syntaxes. JSON-LD is missing, as its contexts are fetched from the web."""


@dataclass(frozen=True)
class Rdf(RdfReader):
    """See `RdfReader`. Parsed statements are written to a temporary file, so that only the ids are in memory.

    Nodes without a name are numbered in each file, `_:FILE-1`. In a file with an error the statements before it are
    read if errors are skipped.
    """

    suffixes: ClassVar[tuple[str, ...]] = tuple(SYNTAXES)

    def statements(self, paths: Sequence[Path]) -> Iterator[Statement | MalformedError]:
        for path in files(paths, self.suffixes):
            with tempfile.TemporaryFile() as spilt:
                error = _parse(path, spilt)
                spilt.seek(0)
                yield from (Statement(*orjson.loads(line)) for line in spilt)
            if error is not None:
                yield error


def _parse(path: Path, spilt: IO[bytes]) -> MalformedError | None:
    """Write the file's statements as lines of JSON; returns the error in it."""
    try:
        from rdflib import Graph
        from rdflib.store import Store
    except ModuleNotFoundError as error:
        raise WorkbenchError("RDF needs the package 'rdflib': pip install 'pretraining-workbench[kg]'") from error

    syntax = SYNTAXES.get(plain_suffix(path))
    if syntax is None:
        raise WorkbenchError(f"{path} has none of the suffixes of RDF: {', '.join(SYNTAXES)}")
    names = _Names(stem(path))

    class Spill(Store):
        def add(self, triple: Any, context: Any, quoted: bool = False) -> None:
            spilt.write(orjson.dumps(list(names.statement(*triple))) + b"\n")

    with open_bytes(path) as source:
        try:
            graph: Any = Graph(store=Spill())  # its annotations lack other readers of bytes
            graph.parse(file=source, format=syntax, publicID=f"file:///{path.name}")
        except Exception as error:  # rdflib's parsers have no common error class
            if getattr(error, "errno", None) is not None:
                raise  # an error of the disk
            return MalformedError(f"no {syntax}", path.name, " ".join(str(error).split())[:200])
    return None


class _Names:
    """The terms of rdflib as text; nodes without a name are numbered in order, not at random as in rdflib."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.blank: dict[str, int] = {}

    def statement(self, subject: Any, predicate: Any, value: Any) -> Statement:
        """The statement with three terms."""
        from rdflib import Literal

        literal = isinstance(value, Literal)
        language = value.language if literal else None
        return Statement(self.name(subject), str(predicate), self.name(value), not literal, language)

    def name(self, term: Any) -> str:
        """A term without brackets or quotes."""
        from rdflib import BNode

        if not isinstance(term, BNode):
            return str(term)
        return f"_:{self.place}-{self.blank.setdefault(str(term), len(self.blank) + 1)}"

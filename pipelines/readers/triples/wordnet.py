"""WordNet's database files (wndb(5WN), Miller 1995): the folder `dict` with data.noun, data.verb, data.adj, data.adv.

A synset is an entity. Its first word is its label, its other words are its aliases, its gloss is its description, and
its lexicographer class (`noun.animal`) is its type. Its id is its place in the file with the part of speech,
`02084071-n`; satellites of adjectives (`s`) count as adjectives (`a`). Pointers are triples, also those between single
words of two synsets (antonyms, derivations).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.readers.reader import MalformedError, Peek
from pipelines.readers.triples.graph import Found, GraphReader, parsed
from pipelines.readers.triples.texts import EntityTexts, Row, TextRows, rows_of_files
from workbench.core.errors import WorkbenchError

FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
CLASSES = (
    *("adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact", "noun.attribute"),
    *("noun.body", "noun.cognition", "noun.communication", "noun.event", "noun.feeling", "noun.food", "noun.group"),
    *("noun.location", "noun.motive", "noun.object", "noun.person", "noun.phenomenon", "noun.plant"),
    *("noun.possession", "noun.process", "noun.quantity", "noun.relation", "noun.shape", "noun.state"),
    *("noun.substance", "noun.time", "verb.body", "verb.change", "verb.cognition", "verb.communication"),
    *("verb.competition", "verb.consumption", "verb.contact", "verb.creation", "verb.emotion", "verb.motion"),
    *("verb.perception", "verb.possession", "verb.social", "verb.stative", "verb.weather", "adj.ppl"),
)
"""The lexicographer classes by their numbers (lexnames(5WN)): the 45 supersenses."""
RELATIONS = {
    "!": "antonym",
    "@": "hypernym",
    "@i": "instance_hypernym",
    "~": "hyponym",
    "~i": "instance_hyponym",
    "#m": "member_holonym",
    "#s": "substance_holonym",
    "#p": "part_holonym",
    "%m": "member_meronym",
    "%s": "substance_meronym",
    "%p": "part_meronym",
    "=": "attribute",
    "+": "derivationally_related_form",
    ";c": "topic_domain",
    "-c": "topic_member",
    ";r": "region_domain",
    "-r": "region_member",
    ";u": "usage_domain",
    "-u": "usage_member",
    "*": "entailment",
    ">": "cause",
    "^": "also_see",
    "$": "verb_group",
    "&": "similar_to",
    "<": "participle",
    "\\": "pertainym",
}
"""The meanings of pointers (wninput(5WN)); `pertainym` also leads from an adverb to its adjective."""
SYNTAX = re.compile(r"\((?:a|p|ip)\)$")
"""The syntactic marker after an adjective."""


class Synset(NamedTuple):
    """A line of a data file."""

    id: str
    words: list[str]
    lexicographer: str
    pointers: list[tuple[str, str]]
    gloss: str


@dataclass(frozen=True)
class Wordnet(GraphReader):
    """Synsets with their words, glosses and lexicographer classes; all pointers between them."""

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.is_folder and any(name in source.names for name in FILES)

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [*files_of(paths), *self.text_files(paths)]

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        for synset in synsets(paths):
            if isinstance(synset, MalformedError):
                yield synset
            else:
                yield from ((synset.id, relation, tail) for relation, tail in synset.pointers)

    def texts(self, paths: Sequence[Path], said: Iterable[tuple[str, Row]]) -> EntityTexts:
        """The texts of the database, overridden by the named files."""
        own = ((synset.id, _texts(synset)) for synset in synsets(paths) if isinstance(synset, Synset))
        entities = TextRows(rows_of_files([*self.entities, *self.types]), first=own)
        return EntityTexts(entities, *(TextRows(rows_of_files(files)) for files in (self.relations, self.type_names)))

    def called(self, name: str) -> str:
        return name.replace("_", " ")


def files_of(paths: Sequence[Path]) -> list[Path]:
    found = [folder / name for folder in paths for name in FILES if (folder / name).is_file()]
    if not found:
        raise WorkbenchError(
            f"{', '.join(map(str, paths))} has no {', '.join(FILES)}; name WordNet's folder `dict`, unpacked"
        )
    return found


def synsets(paths: Sequence[Path]) -> Iterator[Synset | MalformedError]:
    """The synsets of the files, in their order; the licence before them has indented lines."""
    for found in parsed(files_of(paths), (), _synset):
        if found is not None:
            yield found


def _synset(line: str, where: str) -> Synset | None:
    if line.startswith("  "):
        return None
    head, bar, gloss = line.partition(" | ")
    try:
        place, lexicographer, kind, count, *rest = head.split()
        number = 2 * int(count, 16)
        words, (pointers, *rest) = rest[:number:2], rest[number:]
        columns = rest[: 4 * int(pointers)]
        if not bar or not words or len(columns) != 4 * int(pointers):
            raise ValueError("cut off")
        return Synset(
            _id(place, kind),
            [SYNTAX.sub("", word).replace("_", " ") for word in words],
            CLASSES[int(lexicographer)],
            [
                (RELATIONS[symbol], _id(tail, pos))
                for symbol, tail, pos in zip(columns[::4], columns[1::4], columns[2::4], strict=True)
            ],
            gloss.strip(),
        )
    except (ValueError, IndexError, KeyError) as error:
        raise MalformedError("no synset of WordNet", where, f"{type(error).__name__}: {error}") from error


def _id(place: str, kind: str) -> str:
    if not (place.isdigit() and kind in "nvasr"):
        raise ValueError(f"{place} {kind}")
    return f"{place}-{'a' if kind == 's' else kind}"


def _texts(synset: Synset) -> dict[str, Any]:
    label, *aliases = synset.words
    return {"label": label, "aliases": aliases, "gloss": synset.gloss, "types": [synset.lexicographer]}

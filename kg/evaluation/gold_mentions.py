"""Mentions whose entities are known, read from a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from kg.linking.split_text import SplitText
from kg.sequences.linked_mentions import are_candidates, mark_of, noted_linker
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus

Stretch = tuple[int, int]


@dataclass
class AnnotatedText:
    """A text, the right entities of each mention (none: NIL), and of some the first of the corpus's candidates.

    Of candidates (`prepare link --candidates --supervise`) those that are marked as right count; a mention with none
    of these may mean anything: it is one of `unknown`, and no mention. `candidates` is how many there are.

    `signs` says that its spaces are none, as the linker noted (`prepare link --signs`); `key` is its first record's.
    """

    text: str
    mentions: dict[Stretch, set[str]] = field(default_factory=dict)
    first: dict[Stretch, str] = field(default_factory=dict)
    unknown: set[Stretch] = field(default_factory=set)
    candidates: int = 0
    signs: bool = False
    key: str = ""

    def add(self, sample: Mapping[str, Any], same: Mapping[str, str]) -> None:
        """The mentions of a record of this text."""
        links = sample.get("spans", ())
        self.signs = self.signs or noted_linker(sample).get("signs") is True
        if are_candidates(sample):
            self._add_candidates(((s[0], s[1]), same.get(s[2], s[2]), mark_of(s)) for s in links)
        else:
            for start, end, entity, *_ in links:
                self.mentions.setdefault((start, end), set()).add(same.get(entity, entity))
        if "mention" in sample:
            start, end = sample["mention"][:2]
            if (start, end) not in self.unknown:
                self.mentions.setdefault((start, end), set())
            if sample.get("choices"):
                self.first[start, end] = same.get(sample["choices"][0], sample["choices"][0])

    def joined(self) -> AnnotatedText:
        """The same without spaces."""
        separated = SplitText(self.text)
        mentions: dict[Stretch, set[str]] = {}
        for place, entities in self.mentions.items():
            mentions.setdefault(separated.in_joined(*place), set()).update(entities)
        first = {separated.in_joined(*place): entity for place, entity in self.first.items()}
        unknown = {separated.in_joined(*place) for place in self.unknown}
        return AnnotatedText(separated.joined, mentions, first, unknown, self.candidates, key=self.key)

    def _add_candidates(self, spans: Iterable[tuple[Stretch, str, int | None]]) -> None:
        """The candidates of a mention, the best first, each labelled right (1), wrong (0), or not at all."""
        right: dict[Stretch, set[str]] = {}
        for place, entity, mark in spans:
            self.candidates += 1
            if mark is not None:
                right.setdefault(place, set()).update({entity} if mark else ())
                self.first.setdefault(place, entity)
        self.unknown |= {place for place, entities in right.items() if not entities}
        self.mentions.update({place: entities for place, entities in right.items() if entities})


def annotated(
    corpus: Corpus, same: Mapping[str, str], limit: int | None = None, *, signs: bool = False
) -> Iterator[AnnotatedText]:
    """The texts of a corpus with their mentions; records of the same text that follow each other are one.

    Texts whose spaces are none, as their linker noted, are joined: that is what it read.

    Args:
        same: ids of the corpus -> ids of the linker, where they differ.
        signs: the spaces of all texts are none.

    Raises:
        WorkbenchError: the corpus has no links, or candidates of which none is marked as right.
    """
    if corpus.kind != "text" or "spans" not in corpus.manifest.fields:
        raise WorkbenchError(
            f"{corpus.place} (kind {corpus.kind}, fields {', '.join(corpus.manifest.fields)}) has no links to compare "
            "with; allowed: a text corpus whose field 'spans' has the right entities"
        )
    candidates, right = 0, False
    for text in _texts(islice(corpus, limit), same):
        candidates, right = candidates + text.candidates, right or any(text.mentions.values())
        yield text.joined() if signs or text.signs else text
    if candidates and not right:
        raise WorkbenchError(
            f"the {candidates:,} links in {corpus.place} are candidates of a linker, and none is marked as right; "
            "evaluate on the corpus that they were found in, where that has the right links, or have these mark the "
            "candidates: `workbench prepare link CORPUS --candidates N --supervise`"
        )


def _texts(samples: Iterable[Mapping[str, Any]], same: Mapping[str, str]) -> Iterator[AnnotatedText]:
    last: AnnotatedText | None = None
    for sample in samples:
        if last is None or last.text != sample["text"]:
            if last is not None:
                yield last
            last = AnnotatedText(sample["text"], key=str(sample.get("key", "")))
        last.add(sample, same)
    if last is not None:
        yield last


def read_same(path: Path) -> dict[str, str]:
    """Ids by other ids, from lines `corpus's id<tab>linker's id`.

    Raises:
        WorkbenchError: no such file, or a line that is none of these; says which.
    """
    if not path.is_file():
        raise WorkbenchError(f"--same {path}: there is no such file")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        at = error.object.count(b"\n", 0, error.start) + 1
        raise WorkbenchError(f"--same {path}, line {at}: not valid UTF-8; convert the file first") from error
    same = {}
    for number, line in enumerate(text.splitlines(), start=1):
        columns = line.split("\t")
        if len(columns) != 2 or not all(columns):
            raise WorkbenchError(f"{path}, line {number}: {line[:80]!r} is not CORPUS-ID<tab>LINKER-ID")
        same[columns[0]] = columns[1]
    return same

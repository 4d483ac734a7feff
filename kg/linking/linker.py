"""Entity linking with a gazetteer: which entities a text mentions, and where.

The longest name or alias at each place is found. The score of entity e there is

    score(e) = p(mention | name) p(e | mention, context)
    p(e | mention, context) = softmax over e of  log prior(e) + fit(e, context) / 2

p(mention | name) says how likely a find of this name is a mention at all (`kg.linking.mention_prior`); a name that the
graph
writes with a capital and the text without (in a text that has capitals) is no more likely one than a common noun. The
prior is the entity's number of triples, a given count, or how often the name is a link to it in texts whose links are
known; the fit is that of the words around the mention to what the graph says (`kg.linking.context`). Ties go to the
smaller id. It is a baseline that runs at the speed of string search.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from kg.graph.store import GraphStore
from kg.graph.strings import open_array, open_strings, save_strings
from kg.linking.ambiguities import ambiguities
from kg.linking.context import Profiles
from kg.linking.folding import Case, FoldedText, is_even, read
from kg.linking.gazetteer import Gazetteer, spellings
from kg.linking.joined_texts import BATCH, CONTEXT_BATCH, JoinedTexts, batches
from kg.linking.lexicon import Lexicon
from kg.linking.mention_links import MentionLinks, Stretch
from kg.linking.name_tables import Linked, Name, NameTables, names_of, profiles, tables
from kg.linking.names import Found
from kg.linking.outcomes import Link
from kg.linking.segmenters import AUTO, LinkingSegmenter, chosen_for, open_word_ends, save_word_ends
from kg.linking.spaced_names import begins_unspaced
from kg.linking.word_ends import WordEnds
from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError
from workbench.core.files.checksums import open_sealed, seal
from workbench.core.files.drafts import check_writable, draft_folder, explained
from workbench.sequences.entities import IdSpace, noted, space_of

VERSION = 3  # of the method: how names become links
SEARCH = f"2 {unicodedata.unidata_version}"
"""How the files of the search are written, and the version of the characters' tables that they were made by."""
META = "linker.json"
ARRAYS = ("offsets", "entities", "priors", "likely", "form")


class Linker:
    """Links text to entities; made by `from_store`, `from_names` or `load`.

    `name` and `version` say who put a span there; the version depends on all names, entities, priors and profiles.
    Pickles as its folder where it has one, else as its arrays, of which the search is built again where it is used.
    """

    name = "gazetteer"
    space: IdSpace | None = None
    """The namespace of the entities' ids; None if it was built from given names."""
    learned_from: Sequence[str] = ()
    """Identities of the corpora whose links it has seen (anchors); they don't judge it."""

    def __init__(
        self,
        made: NameTables,
        case: Case,
        about: Profiles | None,
        saved: tuple[Path, str] | None = None,
        lexicon: WordEnds | None = None,
        search: bool = False,
    ) -> None:
        """From tables, which `from_store` and `from_names` build.

        Args:
            about: profiles of the entities by number, where the context is to count.
            saved: the folder and the version, where it comes from disk.
            lexicon: finds the words of scripts without spaces. Names must not begin or end inside of one.
            search: whether that folder has what the search needs.
        """
        self.case: Case = case
        self.tables = made
        self.profiles = about
        self.lexicon = lexicon
        self.path = saved[0] if saved else None
        self._gazetteer = Gazetteer(made.names, case, self.path if search else None)
        self.version = saved[1] if saved else f"{VERSION}.{self._digest()}"

    @classmethod
    def from_names(
        cls,
        names: Iterable[Name],
        *,
        case: Case = "ignore",
        min_length: int = 2,
        skip: Iterable[str] = (),
        common: bool = True,
        anchors: Iterable[Linked] = (),
        counted: Iterable[Name] = (),
        lexicon: WordEnds | Literal["auto"] | None = None,
    ) -> Linker:
        """A linker of (name, entity id, prior) rows, without context.

        Args:
            names: a prior is greater than 0; of a name's repeated entity the greatest prior counts.
            case: `ignore` or `exact`.
            min_length: names of fewer characters are left out.
            skip: names to leave out.
            common: link English function words too ("it", "us", "who"), which otherwise count where both the name
                and the text have them in capitals.
            anchors: texts with links, (text, spans), iterated over twice: see `kg.linking.name_tables.tables`.
            counted: (name, entity id, count) rows: how often a name is a link to an entity.
            lexicon: what cuts scripts without spaces into words; "auto" chooses by the names.

        Raises:
            WorkbenchError: a prior is not greater than 0, or no name is left.
        """
        made = tables(names, case, min_length, skip, not common, anchors, counted=counted)
        return cls(made, case, None, lexicon=_word_ends(made, lexicon))

    @classmethod
    def from_store(
        cls,
        store: GraphStore,
        *,
        prior: Mapping[str, float] | None = None,
        case: Case = "ignore",
        min_length: int = 2,
        skip: Iterable[str] = (),
        common: bool = False,
        anchors: Iterable[Linked] = (),
        counted: Iterable[Name] = (),
        context: bool = True,
        lexicon: WordEnds | Literal["auto"] | None = None,
    ) -> Linker:
        """A linker of the labels and aliases of a graph; of the ids, where the graph has no label at all.

        Args:
            prior: counts by entity id (of links in a text, of page views); by default the triples of an entity.
            context: compare the words around ambiguous names with the graph.

        Raises:
            WorkbenchError: as for `from_names`.
        """
        made = tables(names_of(store, prior), case, min_length, skip, not common, anchors, store.ids, counted)
        about = profiles(store, made) if context else None
        linker = cls(made, case, about, lexicon=_word_ends(made, lexicon))
        linker.space = store.space
        return linker

    def link(
        self, text: str, min_score: float = 0.0, candidates: int = 1, inside: Iterable[Stretch] | None = None
    ) -> list[Link]:
        """(start, end, entity id, score) of the mentions in characters of `text`: sorted, half-open.

        Mentions are disjoint. With `candidates`, each comes with that many entities at most, the best first. With
        `inside`, only names within these stretches are found; a stretch that is a name as a whole is a mention for
        certain, its score is the entity's share. What people read over in a text makes no difference, and offsets are
        those of the text as it is (`kg.linking.folding`).
        """
        if inside is None:
            return next(self.link_many([text], min_score, candidates))
        reading, end = read(text), 0
        found: list[Found] = []
        certain: set[Stretch] = set()
        stretches = sorted((reading.now(*stretch) for stretch in inside), key=lambda place: (place[0], -place[1]))
        for first, last in stretches:  # of two that overlap the one that begins first, or else is longer
            if first >= end:
                names = self._gazetteer.find(reading.text[first:last], self.lexicon)
                found += [(number, first + start, first + stop) for number, start, stop in names]
                certain.add((first, last))
                end = last
        (links,) = self._links.of(JoinedTexts([reading.text]), found, candidates, certain)
        return _likely(_before(links, reading), min_score)

    def link_many(self, texts: Iterable[str], min_score: float = 0.0, candidates: int = 1) -> Iterator[list[Link]]:
        """`link` of each text. They are read and linked in batches, which takes less time."""
        for batch in batches(texts, BATCH if self.profiles is None else CONTEXT_BATCH):
            even = is_even("_".join(batch))  # one look in place of many
            uneven = {} if even else {place: read(text) for place, text in enumerate(batch) if not is_even(text)}
            for place, reading in uneven.items():
                batch[place] = reading.text
            links: list[list[Link]] = [[]] * len(batch)
            unspaced = [begins_unspaced(text) for text in batch]
            for kind in set(unspaced):  # of the search
                chosen = [place for place, other in enumerate(unspaced) if other is kind]
                joined = JoinedTexts([batch[place] for place in chosen])
                found = self._gazetteer.find(joined.text, self.lexicon)
                for place, of_text in zip(chosen, self._links.of(joined, found, candidates), strict=True):
                    links[place] = of_text
            for place, reading in uneven.items():
                links[place] = _before(links[place], reading)
            yield from links if min_score <= 0 else (_likely(of_text, min_score) for of_text in links)

    def candidates(self, mention: str, text: str = "", start: int = 0, end: int = 0) -> list[tuple[str, float]]:
        """The entities that a name may stand for with their shares, the best first; none for an unknown name.

        With `text`, the words around its characters [start, end) count.
        """
        for spelling in spellings(mention, self.case):
            number = self._gazetteer.number(spelling)
            if number >= 0:
                reading = read(text)
                place = (number, *reading.now(start, end))
                return self._links.scorer.ranked(JoinedTexts([reading.text]), [place], len(self.tables.ids))[0]
        return []

    def knows(self, entity: str) -> bool:
        """Whether there is an entity of this id, with or without a name."""
        place = bisect_left(self.tables.ids, entity)
        return place < len(self.tables.ids) and self.tables.ids[place] == entity

    @cached_property
    def ambiguities(self) -> dict[str, int]:
        """The number of ambiguous names, by reason."""
        return ambiguities(self.tables, self._gazetteer)

    @property
    def num_names(self) -> int:
        """Spellings that are looked for."""
        return len(self._gazetteer.names)

    def save(self, path: str | Path) -> None:
        """Write the linker to the new folder `path`.

        Raises:
            MachineError: the disk is full.
            WorkbenchError: `path` exists, or cannot be written.
        """
        path = Path(path)
        self.check_new(path)
        with explained(path):
            draft = draft_folder(path)
            try:
                self._write(draft)
                os.rename(draft, path)
            except BaseException:
                shutil.rmtree(draft)
                raise
        self.path = path

    @staticmethod
    def check_new(path: Path) -> None:
        """
        Raises:
            MachineError: the disk is full.
            WorkbenchError: something is at `path`, or nothing can be written there.
        """
        if path.exists():
            raise WorkbenchError(f"{path} exists already; remove it, or name another folder for the linker")
        check_writable(path)

    @classmethod
    def load(cls, path: str | Path) -> Linker:
        """The linker that `save` wrote.

        Raises:
            WorkbenchError: there is none at `path`, or it is damaged or of another version.
        """
        path = Path(path)
        meta = open_sealed(
            path,
            META,
            missing=f"there is no linker at {path} (no {META}); `workbench prepare linker GRAPH --output FOLDER` makes "
            "one. What another linker found goes with the texts, as their `spans` (workbench prepare text)",
            again="remove the folder and make the linker again",
        )
        if not meta["version"].startswith(f"{VERSION}."):
            raise WorkbenchError(
                f"the linker {path} was made by version {meta['version'].partition('.')[0]} of the method, this is "
                f"version {VERSION}, which reads names otherwise; remove the folder and make the linker again"
            )
        note("linker", path, meta["digest"])
        arrays = {part: open_array(path, part) for part in ARRAYS}
        made = NameTables(open_strings(path, "names"), open_strings(path, "entity_ids"), **arrays)
        about = None
        if meta["context"]:
            about = Profiles(*(open_array(path, f"profile_{part}") for part in ("offsets", "words", "weights")))
        saved, search = (path, meta["version"]), meta.get("search") == SEARCH  # else built when a text is read
        found = cls(made, meta["case"], about, saved, open_word_ends(path, meta), search)
        found.learned_from, found.space = meta.get("learned_from", ()), space_of(meta.get("graph"))
        return found

    @staticmethod
    def is_saved(path: str | Path) -> bool:
        """Whether there is a linker in the folder `path`."""
        return (Path(path) / META).is_file()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return _reopen, (self.path, self.version)
        return Linker, (self.tables, self.case, self.profiles, None, self.lexicon)

    def _write(self, folder: Path) -> None:
        save_strings(folder, "names", self.tables.names)
        save_strings(folder, "entity_ids", self.tables.ids)
        self._gazetteer.save(folder)
        for part in ARRAYS:
            np.save(folder / f"{part}.npy", getattr(self.tables, part))
        if self.profiles is not None:
            for part in ("offsets", "words", "weights"):
                np.save(folder / f"profile_{part}.npy", getattr(self.profiles, part))
        meta = {
            "name": self.name,
            "version": self.version,
            "case": self.case,
            "learned_from": list(self.learned_from),
            "graph": noted(self.space),
            "context": self.profiles is not None,
            "search": SEARCH,
            **save_word_ends(folder, self.lexicon),
            "names": self.num_names,
            "entities": len(self.tables.ids),
            "ambiguities": self.ambiguities,
        }
        seal(folder, META, meta)

    @cached_property
    def _links(self) -> MentionLinks:
        return MentionLinks(self.tables, self.case, self.profiles)

    def _digest(self) -> str:
        state = hashlib.blake2b(self.case.encode(), digest_size=8)
        ends = self.lexicon
        lexicon = ends if isinstance(ends, Lexicon) else None
        state.update(str(ends).encode() if isinstance(ends, LinkingSegmenter) else b"")
        for strings in (self.tables.names, self.tables.ids, lexicon.words if lexicon is not None else ()):
            state.update("\n".join(strings).encode())
        about = self.profiles
        more = [about.offsets, about.words, about.weights] if about is not None else []
        more += [lexicon.counts] if lexicon is not None else []
        for array in (*(getattr(self.tables, part) for part in ARRAYS), *more):
            state.update(array.tobytes())
        return state.hexdigest()


def _word_ends(made: NameTables, chosen: WordEnds | str | None) -> WordEnds | None:
    """The word segmenter; "auto" chooses it by the names."""
    return chosen_for(made.names) if chosen == AUTO else cast("WordEnds | None", chosen)


def _before(links: list[Link], reading: FoldedText) -> list[Link]:
    """The links with the places of the text as it was before it was read."""
    return [(*reading.before(start, end), entity, score) for start, end, entity, score in links]


def _likely(links: list[Link], min_score: float) -> list[Link]:
    return [link for link in links if link[3] >= min_score]


def _reopen(path: Path, version: str) -> Linker:
    """In another process.

    Raises:
        WorkbenchError: another linker lies there by now.
    """
    linker = Linker.load(path)
    if linker.version != version:
        raise WorkbenchError(f"the linker {path} was replaced while it was in use; put it back, or start again")
    return linker


def open_linker(place: str | Path) -> Linker:
    """A saved linker, or one built from the names in a graph: a triples corpus or a graph store.

    Raises:
        WorkbenchError: neither is there.
    """
    if Linker.is_saved(place):
        return Linker.load(place)
    return Linker.from_store(GraphStore.open(place), context=True, lexicon="auto")

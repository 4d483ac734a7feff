"""Entity linking with a gazetteer: which entities a text mentions, and where.

The longest name or alias at each place is a mention. Where a name stands for several entities e, each gets

    score(e | mention, context) = softmax over e of  log prior(e) + fit(e, context) / 2

with the prior of the entity (its triples in the graph, or given counts) and the fit of the words around the mention
to what the graph says about it (`kg.linking.context`). The score is thus a share between 0 and 1; a name with one
entity scores 1. Ties go to the smaller id. It is a baseline that runs at the speed of string search: it does not judge
whether a phrase is a mention at all, so leave out names that are common words (`skip`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kg.graph.store import GraphStore
from kg.graph.strings import StringTable, open_array, open_strings, save_strings
from kg.linking.context import Profiles, Words, profile_words
from kg.linking.gazetteer import Case, Gazetteer, fold, spellings
from workbench.errors import WorkbenchError
from workbench.files.drafts import draft_folder
from workbench.files.identities import note
from workbench.files.sealed import open_sealed, seal

Link = tuple[int, int, str, float]
Name = tuple[str, str, float]

VERSION = 1  # of the method: how names become links
META = "linker.json"
ALIAS = 0.5  # an alias names its entity less often than the label does
CONTEXT = 0.5  # what a shared word counts: words of one context are not independent
NEIGHBOURS = 200  # neighbours whose names go into an entity's profile


class Linker:
    """Links text to entities; made by `from_store`, `from_names` or `load`.

    `name` and `version` say who put a span there; the version depends on all names, entities, priors and profiles.
    Pickles as its folder where it has one, else as its arrays; the automaton is built again where it is first used.
    """

    name = "gazetteer"

    def __init__(
        self,
        names: list[str],
        case: Case,
        ids: StringTable | list[str],
        candidates: tuple[np.ndarray, np.ndarray, np.ndarray],
        profiles: Profiles | None,
        saved: tuple[Path, str] | None = None,
    ) -> None:
        """From the arrays of a linker (`from_store` and `from_names` make them).

        Args:
            names: folded spellings.
            ids: entity ids by number, sorted.
            candidates: offsets [names + 1], numbers of entities and their priors, the best first.
            profiles: of the entities by number, where the context is to count.
            saved: the folder and the version, where it comes from disk.
        """
        self.case: Case = case
        self.ids = ids
        self.offsets, self.entities, self.priors = candidates
        self.profiles = profiles
        self._gazetteer = Gazetteer(names, case)
        self._best, self._share = self._without_context()
        self.path = saved[0] if saved else None
        self.version = saved[1] if saved else f"{VERSION}.{self._digest()}"

    @classmethod
    def from_names(
        cls, names: Iterable[Name], *, case: Case = "ignore", min_length: int = 2, skip: Iterable[str] = ()
    ) -> Linker:
        """A linker of (name, entity id, prior) rows; scores are shares of the priors, without context.

        Args:
            names: a prior is greater than 0; of a name's repeated entity the greatest prior counts.
            case: `ignore` or `exact`.
            min_length: names of fewer characters are left out.
            skip: names to leave out, common words for instance.

        Raises:
            WorkbenchError: a prior is not greater than 0, or no name is left.
        """
        return cls._of(_collect(names, case, min_length, skip), case, None)

    @classmethod
    def from_store(
        cls,
        store: GraphStore,
        *,
        prior: Mapping[str, float] | None = None,
        case: Case = "ignore",
        min_length: int = 2,
        skip: Iterable[str] = (),
        context: bool = True,
    ) -> Linker:
        """A linker of the labels and aliases of a graph; of the ids, where the graph has no label at all.

        Args:
            prior: counts by entity id (of links in a text, of page views); by default the triples of an entity.
            context: compare the words around ambiguous names with the graph.

        Raises:
            WorkbenchError: as for `from_names`.
        """
        collected = _collect(_names_of(store, prior), case, min_length, skip)
        return cls._of(collected, case, store if context else None)

    @classmethod
    def _of(cls, found: dict[str, dict[str, float]], case: Case, store: GraphStore | None) -> Linker:
        ids = sorted({entity for candidates in found.values() for entity in candidates})
        number = {entity: i for i, entity in enumerate(ids)}
        offsets, entities, priors = [0], [], []
        for candidates in found.values():
            for entity, weight in sorted(candidates.items(), key=lambda item: (-item[1], item[0])):
                entities.append(number[entity])
                priors.append(weight)
            offsets.append(len(entities))
        arrays = np.asarray(offsets, np.int64), np.asarray(entities, np.int32), np.asarray(priors, np.float32)
        profiles = None if store is None else _profiles(store, ids, arrays[0], arrays[1])
        return cls(list(found), case, ids, arrays, profiles)

    def link(self, text: str, min_score: float = 0.0) -> list[Link]:
        """(start, end, entity id, score) of the mentions in characters of `text`: sorted, disjoint, half-open."""
        best, share, words = self._best, self._share, Words(text)
        links: list[Link] = [
            (start, end, entity, share[number])
            if (entity := best[number]) is not None
            else (start, end, *self._in_context(number, words.around(start, end)))
            for number, start, end in self._gazetteer.find(fold(text, self.case))
        ]
        return links if min_score <= 0 else [link for link in links if link[3] >= min_score]

    def link_many(self, texts: Iterable[str], min_score: float = 0.0) -> Iterator[list[Link]]:
        """`link` of each text, as they come."""
        return (self.link(text, min_score) for text in texts)

    def candidates(self, mention: str, text: str = "", start: int = 0, end: int = 0) -> list[tuple[str, float]]:
        """The entities that a name may stand for with their scores, the best first; none for an unknown name.

        With `text`, the words around its characters [start, end) count.
        """
        for spelling in spellings(mention, self.case):
            number = self._gazetteer.number(spelling)
            if number >= 0:
                scores = self._scores(number, Words(text).around(start, end))
                return [
                    (self.ids[e], float(scores[e])) for e in sorted(scores, key=lambda e: (-scores[e], self.ids[e]))
                ]
        return []

    @property
    def num_names(self) -> int:
        """Spellings that are looked for."""
        return len(self._gazetteer.names)

    def save(self, path: str | Path) -> None:
        """Write the linker to the new folder `path`.

        Raises:
            WorkbenchError: `path` exists.
        """
        path = Path(path)
        if path.exists():
            raise WorkbenchError(f"{path} exists already; remove it, or name another folder for the linker")
        draft = draft_folder(path)
        try:
            self._write(draft)
            os.rename(draft, path)
        except BaseException:
            shutil.rmtree(draft)
            raise
        self.path = path

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
            "one",
            again="remove the folder and make the linker again",
        )
        note("linker", path, meta["digest"])
        candidates = open_array(path, "offsets"), open_array(path, "entities"), open_array(path, "priors")
        profiles = None
        if meta["context"]:
            profiles = Profiles(*(open_array(path, f"profile_{part}") for part in ("offsets", "words", "weights")))
        names = list(open_strings(path, "names"))
        return cls(names, meta["case"], open_strings(path, "entity_ids"), candidates, profiles, (path, meta["version"]))

    @staticmethod
    def is_saved(path: str | Path) -> bool:
        """Whether there is a linker in the folder `path`."""
        return (Path(path) / META).is_file()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return Linker.load, (self.path,)
        candidates = self.offsets, self.entities, self.priors
        return Linker, (self._gazetteer.names, self.case, self.ids, candidates, self.profiles)

    def _write(self, folder: Path) -> None:
        save_strings(folder, "names", self._gazetteer.names)
        save_strings(folder, "entity_ids", self.ids)
        for part in ("offsets", "entities", "priors"):
            np.save(folder / f"{part}.npy", getattr(self, part))
        if self.profiles is not None:
            for part in ("offsets", "words", "weights"):
                np.save(folder / f"profile_{part}.npy", getattr(self.profiles, part))
        meta = {
            "name": self.name,
            "version": self.version,
            "case": self.case,
            "context": self.profiles is not None,
            "names": self.num_names,
            "entities": len(self.ids),
        }
        seal(folder, META, meta)

    def _digest(self) -> str:
        state = hashlib.blake2b(self.case.encode(), digest_size=8)
        for strings in (self._gazetteer.names, self.ids):
            state.update("\n".join(strings).encode())
        profiles = self.profiles
        more = [profiles.offsets, profiles.words, profiles.weights] if profiles is not None else []
        for array in (self.offsets, self.entities, self.priors, *more):
            state.update(array.tobytes())
        return state.hexdigest()

    def _without_context(self) -> tuple[list[str | None], list[float]]:
        """The first entity of each name and its share of the priors; None where the context is to decide."""
        first, count = self.offsets[:-1], np.diff(self.offsets)
        priors = self.priors.astype(np.float64)
        shares = (priors[first] / np.add.reduceat(priors, first)).tolist()
        decided = (count == 1).tolist() if self.profiles is not None else [True] * len(count)
        best = [self.ids[e] if sure else None for e, sure in zip(self.entities[first].tolist(), decided, strict=True)]
        return best, [1.0 if share == 1.0 else share for share in shares]  # one object for all ones: it stays cached

    def _scores(self, number: int, context: np.ndarray) -> dict[int, float]:
        """The score of each candidate entity of a name, by its number."""
        part = slice(self.offsets[number], self.offsets[number + 1])
        entities = self.entities[part].tolist()
        logits = np.log(self.priors[part].astype(np.float64))
        if self.profiles is not None:
            logits += CONTEXT * np.array([self.profiles.fit(e, context) for e in entities])
        shares = np.exp(logits - logits.max())
        return dict(zip(entities, (shares / shares.sum()).tolist(), strict=True))

    def _in_context(self, number: int, context: np.ndarray) -> tuple[str, float]:
        scores = self._scores(number, context)
        best = min(scores, key=lambda e: (-scores[e], e))  # numbers are in the order of the ids
        return self.ids[best], scores[best]


def _names_of(store: GraphStore, prior: Mapping[str, float] | None) -> Iterator[Name]:
    degrees = store.degrees
    ids_are_names = store.meta["labels"] == 0
    for row, entity in enumerate(store.ids):
        weight = 1.0 + (float(degrees[row]) if prior is None else prior.get(entity, 0.0))
        label = entity if ids_are_names else store.label_of(row)
        if label:
            yield label, entity, weight
        for alias in store.texts_of(row).get("aliases", ()):
            yield alias, entity, ALIAS * weight


def _collect(names: Iterable[Name], case: Case, min_length: int, skip: Iterable[str]) -> dict[str, dict[str, float]]:
    """Prior by entity by folded spelling."""
    unwanted = {spelling for name in skip for spelling in spellings(name, case)}
    found: dict[str, dict[str, float]] = {}
    for name, entity, weight in names:
        if not weight > 0:
            raise WorkbenchError(
                f"the prior of {entity!r} for the name {name!r} is {weight}; it must be greater than 0"
            )
        for spelling in spellings(name, case):
            if len(spelling) >= max(1, min_length) and spelling not in unwanted:
                candidates = found.setdefault(spelling, {})
                candidates[entity] = max(weight, candidates.get(entity, 0.0))
    if not found:
        raise WorkbenchError(
            f"there are no names to link: the graph has no labels or aliases of at least {min_length} characters"
        )
    return found


def _profiles(store: GraphStore, ids: list[str], offsets: np.ndarray, entities: np.ndarray) -> Profiles:
    """Profiles of the entities that share a name with another; those of the others are empty."""
    ambiguous = np.repeat(np.diff(offsets) > 1, np.diff(offsets))
    wanted = set(entities[ambiguous].tolist())
    nothing = np.empty(0, np.uint32)
    rows = (profile_words(_about(store, store.row(e))) if i in wanted else nothing for i, e in enumerate(ids))
    return Profiles.build(list(rows))


def _about(store: GraphStore, row: int) -> Iterator[str]:
    """What the graph says about an entity, the nearest first."""
    texts = store.texts_of(row)
    yield store.label_of(row)
    yield from texts.get("aliases", ())
    yield texts.get("description", "")
    for kind in texts.get("types", ()):
        number = store.ids.find(kind)
        if number >= 0:
            yield store.label_of(number)
    for neighbour in store.neighbour_rows(row)[:NEIGHBOURS].tolist():
        yield store.label_of(neighbour) or store.ids[neighbour]

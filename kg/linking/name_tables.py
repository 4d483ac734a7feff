"""The tables of a linker, gathered from a graph, given names, and texts with known links."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kg.graph.store import GraphStore
from kg.linking.common_words import ENGLISH
from kg.linking.context import Profiles, profile_words
from kg.linking.folding import Case, read
from kg.linking.gazetteer import Gazetteer, spellings
from kg.linking.mention_prior import Form, form_of, likelihood
from workbench.core.errors import WorkbenchError

Name = tuple[str, str, float]
Linked = tuple[str, Sequence[Sequence[Any]]]
"""A text and its spans, [start, end, entity, ...] in characters."""

ALIAS = 0.5  # an alias names its entity less often than the label does
NEIGHBOURS = 200  # neighbours whose names go into an entity's profile


@dataclass(frozen=True)
class NameTables:
    """Names by number, and the entities that each stands for.

    `entities` (numbers of `ids`) and `priors` of name n lie in [offsets[n], offsets[n + 1]), the best first. `likely`
    is p(mention | name), `form` its `Form`.
    """

    names: Sequence[str]
    ids: Sequence[str]
    offsets: np.ndarray  # int64 [names + 1]
    entities: np.ndarray  # int32
    priors: np.ndarray  # float32
    likely: np.ndarray  # float32 [names]
    form: np.ndarray  # uint8 [names]


def names_of(store: GraphStore, prior: Mapping[str, float] | None) -> Iterator[Name]:
    """The labels and aliases of a graph's entities with their priors."""
    degrees = store.degrees
    ids_are_names = store.meta["labels"] == 0
    for row, entity in enumerate(store.ids):
        weight = 1.0 + (float(degrees[row]) if prior is None else prior.get(entity, 0.0))
        label = entity if ids_are_names else store.label_of(row)
        if label:
            yield label, entity, weight
        for alias in store.texts_of(row).get("aliases", ()):
            yield alias, entity, ALIAS * weight


def tables(
    names: Iterable[Name],
    case: Case,
    min_length: int,
    skip: Iterable[str],
    common: bool,
    anchors: Iterable[Linked] = (),
    entities: Iterable[str] = (),
    counted: Iterable[Name] = (),
) -> NameTables:
    """Gather names.

    Args:
        counted: (name, entity, how often it is a link to the entity), next to the counts of the anchors; more rows of
            a name and an entity add up.
        entities: those that there are, also without a name; those of `names` are added.
        skip: names to leave out.
        common: leave out English function words, save where the graph has them in capitals (IT, US, WHO).
        anchors: texts with links, read twice: link texts become names, and their counts p(entity | name) and
            p(mention | name). Links to other entities than these are no links.

    Raises:
        WorkbenchError: a prior is not greater than 0, no name is left, or no link of the anchors is to an entity here.
    """
    collected = _Collected(case, min_length, skip, ENGLISH if common else frozenset(), entities)
    for name in names:
        collected.add(*name)
    collected.add_links(counted, anchors)
    if not collected.priors:
        raise WorkbenchError(
            f"there are no names to link: the graph has no labels or aliases of at least {min_length} characters"
        )
    return collected.tables(anchors)


class _Collected:
    """Priors by entity, and the form, by folded spelling."""

    def __init__(
        self, case: Case, min_length: int, skip: Iterable[str], common: frozenset[str], entities: Iterable[str]
    ) -> None:
        self.entities = set(entities)
        self.case, self.least, self.common = case, max(1, min_length), common
        self.unwanted = {spelling for name in skip for spelling in spellings(name, case)}
        self.priors: dict[str, dict[str, float]] = {}
        self.forms: dict[str, Form] = {}

    def add(self, name: str, entity: str, weight: float) -> None:
        if not weight > 0:
            raise WorkbenchError(
                f"the prior of {entity!r} for the name {name!r} is {weight}; it must be greater than 0"
            )
        for spelling in self._spellings(name):
            candidates = self.priors.setdefault(spelling, {})
            candidates[entity] = max(weight, candidates.get(entity, 0.0))
            self.entities.add(entity)

    def add_links(self, counted: Iterable[Name], anchors: Iterable[Linked]) -> None:
        """The count of a link text's entity is its prior; what was known before is worth one link."""
        counts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for name, entity, count in counted:
            if not count > 0:
                raise WorkbenchError(f"{name!r} is a link to {entity!r} {count} times; it must be more than 0")
            counts[name][entity] += count
            self.entities.add(entity)
        foreign, known = "", False
        for text, spans in anchors:
            for start, end, entity, *_ in spans:
                if entity in self.entities:
                    counts[text[start:end]][entity] += 1
                    known = True
                else:
                    foreign = entity
        if foreign and not known:
            raise WorkbenchError(
                f"the anchors' links are to none of the linker's {len(self.entities):,} entities: theirs are as "
                f"{foreign!r}, the linker's as {min(self.entities, default='')!r}; give texts that are linked to the "
                "same graph"
            )
        more: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for name, entities in counts.items():
            for spelling in self._spellings(name):
                for entity, count in entities.items():
                    more[spelling][entity] += count
        for spelling, entities in more.items():
            before = self.priors.get(spelling, {})
            whole = sum(before.values()) or 1.0
            self.priors[spelling] = {
                e: before.get(e, 0.0) / whole + entities.get(e, 0.0) for e in before.keys() | entities
            }

    def tables(self, anchors: Iterable[Linked]) -> NameTables:
        ids = sorted(self.entities)
        number = {entity: i for i, entity in enumerate(ids)}
        offsets, entities, priors = [0], [], []
        for candidates in self.priors.values():
            for entity, weight in sorted(candidates.items(), key=lambda item: (-item[1], item[0])):
                entities.append(number[entity])
                priors.append(weight)
            offsets.append(len(entities))
        names = list(self.priors)
        found, linked = self._occurrences(names, anchors)
        forms = [self.forms[name] for name in names]
        return NameTables(
            names,
            ids,
            np.asarray(offsets, np.int64),
            np.asarray(entities, np.int32),
            np.asarray(priors, np.float32),
            np.array([likelihood(f, found[i], linked[i]) for i, f in enumerate(forms)], np.float32),
            np.array(forms, np.uint8),
        )

    def _spellings(self, name: str) -> Iterator[str]:
        """The spellings to search, unless the name is too short, unwanted, or a function word. Notes the form."""
        for spelling in spellings(name, self.case):
            if len(spelling) < self.least or spelling in self.unwanted:
                continue
            form = form_of(name, self.common)
            if form is None:
                continue
            self.forms[spelling] = max(form, self.forms.get(spelling, form))
            yield spelling

    def _occurrences(self, names: Sequence[str], anchors: Iterable[Linked]) -> tuple[Counter[int], Counter[int]]:
        """How often each name is found in the texts, and how often it is a link to one of its entities there."""
        found: Counter[int] = Counter()
        linked: Counter[int] = Counter()
        gazetteer = Gazetteer(names, self.case)
        for text, spans in anchors:
            links = {(span[0], span[1]): span[2] for span in spans}
            reading = read(text)
            for number, start, end in gazetteer.find(reading.text):
                found[number] += 1
                linked[number] += links.get(reading.before(start, end)) in self.priors[names[number]]
        return found, linked


def profiles(store: GraphStore, made: NameTables) -> Profiles:
    """Profiles of the entities that share a name with another; those of the others are empty."""
    ambiguous = np.repeat(np.diff(made.offsets) > 1, np.diff(made.offsets))
    wanted = set(made.entities[ambiguous].tolist())
    nothing = np.empty(0, np.uint32)
    rows = (profile_words(_about(store, store.row(e))) if i in wanted else nothing for i, e in enumerate(made.ids))
    return Profiles.build(list(rows))


def _about(store: GraphStore, row: int) -> Iterator[str]:
    """The texts of the graph about an entity, the nearest first."""
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

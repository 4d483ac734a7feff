"""Links of the names that were found in texts: the entity of each, and how likely it is a mention of it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from operator import itemgetter

from kg.linking.context import Profiles
from kg.linking.folding import Case
from kg.linking.joined_texts import JoinedTexts
from kg.linking.mention_prior import COMMON_NOUN, Form
from kg.linking.name_tables import NameTables
from kg.linking.names import Found
from kg.linking.outcomes import Link, Outcomes
from kg.linking.scoring import CandidateScorer

Stretch = tuple[int, int]

_CAPITALS, _SMALL = int(Form.CAPITALS), int(Form.SMALL)


class MentionLinks:
    """Links names by the tables, and by the words around them where there are profiles."""

    def __init__(self, made: NameTables, case: Case, profiles: Profiles | None) -> None:
        self.made, self.case, self.profiles = made, case, profiles
        self.scorer = CandidateScorer(made, profiles)
        # these have plain integers and floats: arrays are slow there
        self._forms, self._likely = made.form.data, made.likely.data

    def of(
        self, texts: JoinedTexts, found: Sequence[Found], most: int, certain: Set[Stretch] = frozenset()
    ) -> list[list[Link]]:
        """The links of each text by the names found in all of them, with offsets of its own.

        Args:
            most: entities of a mention, the best first.
            certain: stretches that are mentions for certain; they need neither capitals nor a likelihood.
        """
        links: list[list[Link]] = [[] for _ in texts.starts[1:]]
        outcomes, text, exact = self._first if most == 1 else self._only, texts.text, self.case == "exact"
        forms, likelihoods = self._forms, self._likely
        undecided: list[Found] = []
        likely: list[float] = []
        places: list[int] = []  # of their texts
        for place, of_text in texts.by_text(found):
            offset = texts.starts[place]
            plain = exact or text[offset : texts.starts[place + 1]].islower()  # without capitals it is read whole
            links[place] = [] if certain else outcomes.links(text, of_text, offset, plain)
            if len(links[place]) == len(of_text):
                continue
            if outcomes.learn(of_text) and not certain:
                links[place] = outcomes.links(text, of_text, offset, plain)
            for name in of_text:
                number, start, stop = name
                sure = certain and (start, stop) in certain
                if not certain and outcomes.entities[number] is not None:
                    continue
                if forms[number] == _CAPITALS and not sure and not text[start:stop].isupper():
                    continue
                chance = 1.0 if sure else likelihoods[number]
                if not plain and not sure and chance > COMMON_NOUN and forms[number] > _SMALL and text[start].islower():
                    chance = COMMON_NOUN
                undecided.append(name)
                likely.append(chance)
                places.append(place)
        ranked = self.scorer.ranked(texts, undecided, most)
        for place, (_, start, stop), chance, entities in zip(places, undecided, likely, ranked, strict=True):
            start, stop = start - texts.starts[place], stop - texts.starts[place]
            links[place] += [(start, stop, entity, round(chance * share, 6)) for entity, share in entities]
        for place in set(places):
            links[place].sort(key=itemgetter(0))
        return links

    @cached_property
    def _first(self) -> Outcomes:
        return Outcomes(self.made, several=self.profiles is None)

    @cached_property
    def _only(self) -> Outcomes:
        return Outcomes(self.made, several=False)

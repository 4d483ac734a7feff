"""Links of names without their context."""

from __future__ import annotations

from collections.abc import Iterable

from kg.linking.mention_prior import COMMON_NOUN, Form
from kg.linking.name_tables import NameTables
from kg.linking.names import Found

Link = tuple[int, int, str, float]
"""Where a mention begins and ends, its entity's id, and the score."""


class Outcomes:
    """Links of names without their context, computed when a text has a name for the first time.

    `entities` has the entity of each name, `scores` and `small` the score of a find and that of one in small letters.
    The entity is None where a find takes a look at the text: for capitals, or, unless the first of `several` entities
    is to be taken, for the words around. Lists, and no object for each name: most names are met once in a while, and
    what is far apart in memory is slow to come by.
    """

    def __init__(self, made: NameTables, *, several: bool) -> None:
        self.made, self.several = made, several
        self.entities: list[str | None] = [None] * len(made.names)
        self.scores = [-1.0] * len(made.names)
        self.small = [-1.0] * len(made.names)
        self._same: dict[float, float] = {}  # one object for scores that are equal

    def learn(self, found: Iterable[Found]) -> bool:
        """Work out the names that are found for the first time; is any?"""
        scores = self.scores
        new = {number for number, _, _ in found if scores[number] < 0}
        for number in new:
            self._work_out(number)
        return bool(new)

    def links(self, text: str, found: Iterable[Found], offset: int, plain: bool) -> list[Link]:
        """The links of names whose entity is known without their context; in a `plain` one case says nothing.

        Args:
            found: names, by their places in `text`.
            offset: the place in `text` that the links' places begin at.
        """
        entities, scores = self.entities, self.scores
        if plain:
            return [
                (start - offset, end - offset, entity, scores[number])
                for number, start, end in found
                if (entity := entities[number]) is not None
            ]
        small = self.small
        return [
            (start - offset, end - offset, entity, (small if text[start].islower() else scores)[number])
            for number, start, end in found
            if (entity := entities[number]) is not None
        ]

    def _work_out(self, number: int) -> None:
        made = self.made
        part = slice(made.offsets[number], made.offsets[number + 1])
        form, likely, priors = made.form[number], float(made.likely[number]), made.priors[part].astype("float64")
        share = float(priors[0] / priors.sum())
        score, small = likely * share, (min(likely, COMMON_NOUN) if form > Form.SMALL else likely) * share
        self.scores[number], self.small[number] = (
            self._same.setdefault(s, s) for s in (round(score, 6), round(small, 6))
        )
        if form != Form.CAPITALS and (self.several or len(priors) == 1):
            self.entities[number] = made.ids[made.entities[part.start]]

"""Links of names without their context."""

from __future__ import annotations

from collections.abc import Iterable

from kg.linking.mention_prior import COMMON_NOUN, Form
from kg.linking.name_tables import NameTables
from kg.linking.names import Found


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
        new = {number for number, _, _ in found if self.scores[number] < 0}
        for number in new:
            self._work_out(number)
        return bool(new)

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

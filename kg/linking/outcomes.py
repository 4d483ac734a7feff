"""What a find of a name comes to by the name alone."""

from __future__ import annotations

import numpy as np

from kg.linking.building import Tables
from kg.linking.mentions import COMMON_NOUN, Form

Outcome = tuple[str, float, float]
"""An entity, the score of a find, and that of one in small letters."""


class Outcomes(dict[int, Outcome | None]):
    """What a find of a name comes to by the name alone; worked out when a text has the name for the first time.

    None where it takes a look at the text: for capitals, or, unless the first of `several` entities is to be taken, for
    the words around.
    """

    def __init__(self, made: Tables, *, several: bool) -> None:
        self.made, self.several = made, several

    def __missing__(self, number: int) -> Outcome | None:
        made = self.made
        part = slice(made.offsets[number], made.offsets[number + 1])
        form, likely, priors = made.form[number], float(made.likely[number]), made.priors[part].astype(np.float64)
        outcome = None
        if form != Form.CAPITALS and (self.several or len(priors) == 1):
            share = float(priors[0] / priors.sum())
            small = min(likely, COMMON_NOUN) if form > Form.SMALL else likely
            outcome = made.ids[made.entities[part.start]], round(likely * share, 6), round(small * share, 6)
        self[number] = outcome
        return outcome

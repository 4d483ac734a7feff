"""How likely it is that a name found in a text is a mention of its entity at all.

    p(mention | name) = (linked + STRENGTH p0) / (found + STRENGTH)

`found` counts the name in texts whose links are known (anchors), `linked` those where it is a link to an entity of the
graph (keyphraseness; Mihalcea and Csomai, "Wikify!", CIKM 2007). Without such texts it is p0, by the name's form. The
values of p0 were measured on 85 Wikipedia articles with the names of CoDEx-S: the share of finds whose entity is one
that the article's own links name. Articles link few mentions of what they link, so the values are low as
probabilities of being right; they order the finds, and a threshold on them means the same for every graph.
"""

from __future__ import annotations

from enum import IntEnum

STRENGTH = 5.0
"""The weight of p0 as a number of finds."""


class Form(IntEnum):
    """The form of a name in the graph."""

    CAPITALS = 0  # a function word in capitals (IT, US, WHO), which counts in capitals alone
    SMALL = 1  # in small letters: novel, short story
    WORD = 2  # one word
    WORDS = 3  # several


P0 = {Form.CAPITALS: 0.25, Form.SMALL: 0.12, Form.WORD: 0.25, Form.WORDS: 0.65}
COMMON_NOUN = P0[Form.SMALL]


def form_of(name: str, common: frozenset[str]) -> Form | None:
    """The form of a name; None where it is one of the function words `common` (in small letters), and no name."""
    if name.lower() in common:
        return Form.CAPITALS if name.isupper() else None
    if name.islower():
        return Form.SMALL
    return Form.WORDS if " " in name.strip() else Form.WORD


def likelihood(form: Form, found: int = 0, linked: int = 0) -> float:
    """p(mention | name)."""
    return (linked + STRENGTH * P0[form]) / (found + STRENGTH)

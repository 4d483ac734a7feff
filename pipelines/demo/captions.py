"""Captions of rendered scenes, and which scenes a caption fits.

A caption says some things about some objects; what it says is kept as `Claim`s, so that the best possible retrieval
can be computed: where a caption fits n of the scenes, no model can do better than 1 in n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from pipelines.demo.scenes import Scene, Thing

_LISTS = (
    "There is {0}.",
    "The picture shows {0}.",
    "{0}.",
    "I can see {0}.",
    "{0} on a grey ground.",
    "Someone drew {0}.",
    "An image with {0}.",
    "Look: {0}!",
)
_PAIRS = {
    "left": (
        "{0} is to the left of {1}.",
        "{1} is to the right of {0}.",
        "{0} on the left, {1} further right.",
        "To the right of {0} there is {1}.",
    ),
    "above": (
        "{0} is above {1}.",
        "{1} is below {0}.",
        "{0} with {1} further down.",
        "Over {1} there is {0}.",
    ),
}


@dataclass(frozen=True)
class Phrase:
    """What is said of one object; None means that it is not said."""

    shape: str
    colour: str | None = None
    size: str | None = None
    place: str | None = None

    def fits(self, thing: Thing) -> bool:
        return (
            self.shape == thing.shape
            and self.colour in (None, thing.colour)
            and self.size in (None, thing.size)
            and self.place in (None, thing.place)
        )

    def text(self) -> str:
        words = " ".join(word for word in (self.size, self.colour, self.shape) if word)
        article = "an" if words[0] in "aeiou" else "a"
        return f"{article} {words}" + (f" at the {self.place}" if self.place else "")


@dataclass(frozen=True)
class Claim:
    """Objects that the scene has, and a relation (left, above) of the first to the second."""

    phrases: tuple[Phrase, ...]
    relation: str | None = None

    def fits(self, scene: Scene) -> bool:
        """Whether different objects of the scene can be found for all phrases."""
        if not all(any(phrase.fits(thing) for thing in scene.things) for phrase in self.phrases):
            return False  # settles most scenes without trying every assignment
        return any(
            all(phrase.fits(thing) for phrase, thing in zip(self.phrases, things, strict=True))
            and (self.relation is None or _related(self.relation, things[0], things[1]))
            for things in permutations(scene.things, len(self.phrases))
        )


Caption = tuple[str, Claim]


def captions(scene: Scene, rng: np.random.Generator) -> list[Caption]:
    """Five different captions: three name every object, with more or less detail; two name only a pair."""
    kinds: list[Callable[[Scene, np.random.Generator], Caption]] = [
        lambda s, r: _listed(s, r, detail=0.0),
        lambda s, r: _listed(s, r, detail=0.5),
        _placed,
        _paired,
        lambda s, r: _listed(s, r, detail=1.0, count=2),
    ]
    made: dict[str, Claim] = {}
    for i in rng.permutation(len(kinds)):
        text, claim = kinds[i](scene, rng)
        while text in made:
            text, claim = kinds[i](scene, rng)
        made[text] = claim
    return list(made.items())


def ceiling(claims: Sequence[Sequence[Claim]], scenes: Sequence[Scene]) -> float:
    """The best image-retrieval R@1 (0..1) that the captions allow: the mean of 1 / (scenes that a caption fits)."""
    shares = [1 / sum(claim.fits(scene) for scene in scenes) for mine in claims for claim in mine]
    return float(np.mean(shares))


def _listed(scene: Scene, rng: np.random.Generator, detail: float, count: int | None = None) -> Caption:
    things = _shuffled(scene, rng)[:count]
    phrases = tuple(Phrase(t.shape, t.colour, t.size if rng.random() < detail else None) for t in things)
    return _sentence(_one(_LISTS, rng), _joined(phrases)), Claim(phrases)


def _placed(scene: Scene, rng: np.random.Generator) -> Caption:
    things = _shuffled(scene, rng)
    phrases = tuple(Phrase(t.shape, t.colour, None, t.place if rng.random() < 0.7 else None) for t in things)
    return _sentence(_one(_LISTS, rng), _joined(phrases)), Claim(phrases)


def _paired(scene: Scene, rng: np.random.Generator) -> Caption:
    pairs = [
        (relation, a, b) for a, b in permutations(scene.things, 2) for relation in _PAIRS if _related(relation, a, b)
    ]
    relation, a, b = pairs[int(rng.integers(len(pairs)))]
    sized = rng.random(2) < 0.5
    phrases = tuple(Phrase(t.shape, t.colour, t.size if s else None) for t, s in zip((a, b), sized, strict=True))
    return _sentence(_one(_PAIRS[relation], rng), *(p.text() for p in phrases)), Claim(phrases, relation)


def _related(relation: str, a: Thing, b: Thing) -> bool:
    return a.column < b.column if relation == "left" else a.row < b.row


def _shuffled(scene: Scene, rng: np.random.Generator) -> list[Thing]:
    return [scene.things[i] for i in rng.permutation(len(scene.things))]


def _one(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _joined(phrases: Sequence[Phrase]) -> str:
    texts = [phrase.text() for phrase in phrases]
    return ", ".join(texts[:-1]) + " and " + texts[-1]


def _sentence(template: str, *parts: str) -> str:
    text = template.format(*parts)
    return text[0].upper() + text[1:]

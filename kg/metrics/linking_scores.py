"""Entity linking metrics: of mentions that are given, and of links that are found.

Given mentions ("disambiguation to a knowledge base", D2KB in GERBIL, Usbeck et al., WWW 2015): how often the entity is
right, among mentions whose entity is in the knowledge base; NIL is a class of its own, of mentions whose entity is
not. Found links (A2KB): micro precision, recall and F1, a link being right where both ends and the entity are. Texts
whose authors link a name only once punish every later link; so the same scores are reported again for
only the links that overlap an annotation. A share of nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from workbench.metrics.tallies import Tally

Stretch = tuple[int, int]
Entities = Set[str]


class GivenMention(NamedTuple):
    """A mention that is given: the entities that are right (none: NIL), and those of the linker, the best first."""

    gold: Entities
    ranked: Sequence[str]


class FoundEntities(NamedTuple):
    """A text: the entities that are right by mention (none: NIL), and the entity that was found by mention."""

    gold: Mapping[Stretch, Entities]
    found: Mapping[Stretch, str]


def mention_scores(mentions: Sequence[GivenMention]) -> dict[str, float]:
    """Accuracy and candidate recall over mentions with an entity; precision and recall of NIL."""
    return {name: tally.whole for name, tally in mention_tallies([mentions]).items()}


def mention_tallies(texts: Sequence[Sequence[GivenMention]]) -> dict[str, Tally]:
    """The tallies of each text for the numbers of `mention_scores`."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for mentions in texts:
        known = [mention for mention in mentions if mention.gold]
        nil = [not mention.gold for mention in mentions if not mention.ranked]
        for name, row in {
            "accuracy": (sum(bool(m.ranked) and m.ranked[0] in m.gold for m in known), len(known)),
            "candidate recall": (sum(not m.gold.isdisjoint(m.ranked) for m in known), len(known)),
            "NIL precision": (sum(nil), len(nil)),
            "NIL recall": (sum(nil), len(mentions) - len(known)),
        }.items():
            rows.setdefault(name, []).append(row)
    return {name: Tally.of("share", *zip(*of, strict=True)) for name, of in rows.items() if any(w for _, w in of)}


def detection_scores(texts: Sequence[FoundEntities]) -> dict[str, float]:
    """Precision, recall and F1 of links, of all and of those that overlap an annotation."""
    return {name: tally.whole for name, tally in detection_tallies(texts).items()}


def detection_tallies(texts: Sequence[FoundEntities]) -> dict[str, Tally]:
    """The tallies of each text for the numbers of `detection_scores`."""
    gold = [sum(bool(entities) for entities in text.gold.values()) for text in texts]
    right = [sum(entity in text.gold.get(place, ()) for place, entity in text.found.items()) for text in texts]
    found = [len(text.found) for text in texts]
    near = [sum(_annotated(place, text.gold) for place in text.found) for text in texts]
    tallies: dict[str, Tally] = {}
    for where, counted in (("", found), (" of links that overlap annotations", near)):
        if any(counted):
            tallies[f"precision{where}"] = Tally.of("share", right, counted)
        if any(gold):
            tallies["recall"] = Tally.of("share", right, gold)
        if any(counted) or any(gold):
            tallies[f"F1{where}"] = Tally.of("f1", right, counted, gold)
    return tallies


def _annotated(place: Stretch, gold: Mapping[Stretch, Entities]) -> bool:
    return place in gold or any(place[0] < end and start < place[1] for start, end in gold)

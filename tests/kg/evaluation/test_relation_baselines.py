"""Predictions of a relation from its two mentions alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kg.evaluation.relation_baselines import by_mentions, entity_of, mention_of, words_of
from workbench.evaluation.finetuning.labels import labelled


def sample(head: str, tail: str, relation: str | None = None, linked: bool = False) -> dict[str, Any]:
    marks = [[0, len(head), "head"], [len(head) + 1, len(head) + 1 + len(tail), "tail"]]
    spans = [[0, len(head), f"Q-{head.lower()}", 1.0]] if linked else []
    labels = {"labels": {"relation": relation}} if relation else {}
    return {"text": f"{head} {tail}", "marks": marks, "spans": spans, **labels}


def test_a_mention_is_its_entity_and_its_text() -> None:
    found = sample("Oslo", "Norway", linked=True)
    assert mention_of(found, "head") == ("Q-oslo", "oslo")
    assert mention_of(found, "tail") == ("", "norway")
    wider = {**found, "spans": [[0, 9, "Q1", 1.0]]}
    assert mention_of(wider, "head") == ("", "oslo")


def test_equals_naive_bayes_by_hand() -> None:
    trained = [
        sample("a", "x", "r"),
        sample("a", "y", "r"),
        sample("b", "x", "s"),
        sample("c", "x", "r"),
        sample("a", "x"),
    ]
    samples, gold = labelled(trained, "relation", {"r": 0, "s": 1})
    assert (len(samples), gold.tolist()) == (4, [0, 0, 1, 0])
    tested = [sample("B", "x"), sample("a", "x"), sample("new", "new"), sample("b", "y")]

    def score(test: dict[str, Any], relation: int) -> float:
        n = sum(gold == relation)
        total = math.log(n)
        for role, known in (("head", 3), ("tail", 2)):
            wanted = mention_of(test, role)[1]
            here = sum(mention_of(s, role)[1] == wanted and g == relation for s, g in zip(samples, gold, strict=True))
            total += math.log((here + 1) / (n + known))
        return total

    wanted = [int(np.argmax([score(test, relation) for relation in (0, 1)])) for test in tested]
    found = by_mentions(samples, gold, tested, 2, words_of)
    assert found is not None
    assert found.tolist() == wanted
    assert len(set(wanted)) == 2


def test_an_entity_is_known_by_its_link_whatever_its_name() -> None:
    trained = [sample("Rome", "x", "r", linked=True), sample("Paris", "x", "s", linked=True)]
    samples, gold = labelled(trained, "relation", {"r": 0, "s": 1})
    other = {**sample("City", "x"), "spans": [[0, 4, "Q-paris", 1.0]]}
    found = by_mentions(samples, gold, [other], 2, entity_of)
    assert found is not None
    assert found.tolist() == [1]


def test_words_say_where_no_entity_was_seen_in_training() -> None:
    trained = [sample("Jane Smith", "x", "r"), sample("River Wye", "x", "s")]
    samples, gold = labelled(trained, "relation", {"r": 0, "s": 1})
    tested = [{**sample("River Exe", "y"), "spans": [[0, 9, "Q9", 1.0]]}, sample("Ann Smith", "y")]
    found = by_mentions(samples, gold, tested, 2, words_of)
    assert found is not None
    assert found.tolist() == [1, 0]
    assert by_mentions(samples, gold, tested, 2, entity_of) is None, "nothing is linked in training"


def test_what_is_not_linked_is_detected_by_the_other_mention() -> None:
    trained = [sample("Rome", "x", "r", linked=True), sample("Paris", "x", "s", linked=True), sample("Oslo", "x", "s")]
    samples, gold = labelled(trained, "relation", {"r": 0, "s": 1})
    found = by_mentions(samples, gold, [sample("new", "x"), sample("Rome", "x", linked=True)], 2, entity_of)
    assert found is not None
    assert found.tolist() == [1, 0]

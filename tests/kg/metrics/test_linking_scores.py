"""Linking metrics, counted by hand."""

from __future__ import annotations

import pytest

from kg.metrics.linking_scores import FoundEntities, GivenMention, detection_scores, mention_scores


def test_given_mentions() -> None:
    mentions = [
        GivenMention({"a"}, ["a", "b"]),
        GivenMention({"a", "c"}, ["c"]),  # either is right
        GivenMention({"a"}, ["b", "a"]),
        GivenMention({"a"}, []),
        GivenMention(set(), []),
        GivenMention(set(), ["b"]),
        GivenMention(set(), []),
    ]
    assert mention_scores(mentions) == pytest.approx(
        {"accuracy": 2 / 4, "candidate recall": 3 / 4, "NIL precision": 2 / 3, "NIL recall": 2 / 3}
    )
    assert mention_scores([GivenMention({"a"}, ["a"])]) == {"accuracy": 1, "candidate recall": 1}


def test_found_links() -> None:
    texts = [
        FoundEntities({(0, 4): {"a"}, (5, 9): set(), (20, 24): {"b"}}, {(0, 4): "a", (5, 9): "c", (10, 12): "d"}),
        FoundEntities({(0, 4): {"a"}}, {(0, 6): "a"}),  # the right entity of the wrong stretch
        FoundEntities({}, {(0, 1): "e"}),
    ]
    assert detection_scores(texts) == pytest.approx(
        {
            "precision": 1 / 5,
            "recall": 1 / 3,
            "F1": 2 / (5 + 3),
            "precision of links that overlap annotations": 1 / 3,
            "F1 of links that overlap annotations": 2 / (3 + 3),
        }
    )
    assert detection_scores([FoundEntities({(0, 1): {"a"}}, {})]) == {
        "recall": 0,
        "F1": 0,
        "F1 of links that overlap annotations": 0,
    }

"""arranged: permuted segments and pairs at three distances, by their classes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.contracts.cases import ObjectiveCase
from workbench.core.keyed import Draws
from workbench.objectives.arranged import ORDERS, Arranged
from workbench.sequences.sequence import Sample

CASES = {
    by: ObjectiveCase({"by": by}, {"originals": "no row is changed"}, sequence={"builder": "sentence_pair"}, small=0)
    for by in ("order", "distance")
}
SENTENCES = ["The river is old.", "It runs past a town.", "People buy bread there.", "The bridge is new."]


def samples(count: int, number: int = 0) -> list[Sample]:
    text = " ".join(SENTENCES)
    begin = text.index("town")
    return [
        {
            "key": f"k{i}",
            "corpus": "c",
            "draw": (number, i),
            "text": f"{i:03d} {text}",
            "spans": [[begin + 4, begin + 8, "Q1"]],
        }
        for i in range(10, 10 + count)
    ]


def arranged(by: Any, given: list[Sample], number: int = 0) -> list[Sample]:
    objective = Arranged(by)
    objective.name = "it"
    return objective.arrange(given, Draws(0, "task", "it", number=(number,)))


def test_the_class_of_an_order_restores_the_text() -> None:
    seen: Counter[int] = Counter()
    for before, after in zip(samples(600), arranged("order", samples(600)), strict=True):
        label = after["labels"]["it"]
        seen[label] += 1
        assert "second" not in after
        assert sorted(after["text"].split()) == sorted(before["text"].split())
        assert (after["text"] == before["text"]) == (ORDERS[label] == tuple(range(len(ORDERS[label]))))
        [(begin, end, entity)] = after["spans"]
        assert (after["text"][begin:end], entity) == ("town", "Q1")
    assert sorted(seen) == [*range(9)]
    assert all(abs(seen[label] - wanted) < 60 for label, wanted in ((0, 200), (1, 100), (2, 100), (3, 33), (8, 33)))


def test_pairs_at_three_distances() -> None:
    given = samples(300)
    seen: Counter[int] = Counter()
    for before, after in zip(given, arranged("distance", given), strict=True):
        label = after["labels"]["it"]
        seen[label] += 1
        first, second = after["text"], after["second"]
        assert before["text"].startswith(first)
        if label == 0:
            assert before["text"].startswith(first + second)
        elif label == 1:
            assert before["text"].endswith(second)
            assert len(first + second) < len(before["text"])
    assert all(abs(seen[label] - 100) < 40 for label in range(3))


def test_what_has_too_few_sentences_has_no_label() -> None:
    one: list[Sample] = [{"key": "b", "corpus": "c", "draw": (1,), "text": "One."}]
    assert [s["labels"]["it"] for s in arranged("order", one)] == [-100]
    short: list[Sample] = [{"key": "a", "corpus": "c", "draw": (0,), "text": "One. Two."}]
    assert [s["labels"]["it"] for s in arranged("distance", short)] == [-100]
    pair: list[Sample] = [{**short[0], "second": "Three."}]
    assert [s["labels"]["it"] for by in ("order", "distance") for s in arranged(by, pair)] == [-100, -100]

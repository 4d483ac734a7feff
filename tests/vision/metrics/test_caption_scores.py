"""Scores of captions: the figures of the COCO evaluation's own code on the same words, and the formulas in loops."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from vision.metrics.caption_scores import bleu, caption_scores, cider_d, words_of

MADE = [
    "A dog runs on the green grass.",
    "two men are playing football",
    "a red bus",
    "a child",
    "",
    "a dog runs",
]
WANTED = [
    ["A brown dog runs across the grass .", "The dog is running on green grass.", "a dog plays"],
    ["Two men play football on a field.", "Men playing soccer"],
    ["A red double-decker bus drives down the street.", "A bus on the road", "A red bus is parked.", "the big red bus"],
    ["A child plays with a ball.", "a little boy in the garden"],
    ["A man stands on a rock.", "a climber at the summit"],
    ["A dog jumps over a log.", "A dog runs on the grass"],
]
CIDER = [1.474039528760729, 1.5743414144560954, 2.635405974394022, 0.9923819873158536, 0.0, 2.537540647887516]
BLEU = [0.548102319806652, 0.4355875545361641, 0.2797518616879865, 0.0]
"""Of pycocoevalcap 1.2 (the code of github.com/tylin/coco-caption), on `words_of` these; its smallest BLEU is 4e-5."""


def words() -> tuple[list[list[str]], list[list[list[str]]]]:
    return [words_of(text) for text in MADE], [[words_of(text) for text in each] for each in WANTED]


def test_cider_is_that_of_the_published_code() -> None:
    assert cider_d(*words()) == pytest.approx(CIDER, rel=1e-9)


def test_bleu_is_that_of_the_published_code() -> None:
    assert bleu(*words()) == pytest.approx([100 * value for value in BLEU], abs=1e-3)


def test_the_formula_in_loops() -> None:
    made, wanted = words()
    found = cider_d(made, wanted)

    def grams(text: list[str], n: int) -> Counter[tuple[str, ...]]:
        return Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1))

    for place, text in enumerate(made):
        total = 0.0
        for n in (1, 2, 3, 4):
            idf = {}
            for gram in {g for t in [text, *wanted[place]] for g in grams(t, n)}:
                images = sum(any(gram in grams(other, n) for other in each) for each in wanted)
                idf[gram] = math.log(len(wanted) / max(1, images))
            own = np.array(list(grams(text, n).values()), float) * [idf[g] for g in grams(text, n)]
            for other in wanted[place]:
                theirs = {g: count * idf[g] for g, count in grams(other, n).items()}
                norms = np.linalg.norm(own) * np.linalg.norm(list(theirs.values()))
                common = sum(
                    min(w, theirs.get(g, 0)) * theirs.get(g, 0) for g, w in zip(grams(text, n), own, strict=True)
                )
                length = math.exp(-((len(text) - len(other)) ** 2) / 72)
                total += 10 * length * common / norms / 4 / len(wanted[place]) if norms else 0.0
        assert found[place] == pytest.approx(total, rel=1e-9), MADE[place]


def test_its_own_words_are_worth_most() -> None:
    own = caption_scores([each[0] for each in WANTED], [[each[0]] for each in WANTED])
    other = caption_scores([WANTED[i - 1][0] for i in range(6)], [[each[0]] for each in WANTED])
    assert own["bleu4"] == pytest.approx(100)
    assert own["cider"] == pytest.approx(1000)
    assert other["cider"] < 300


def test_signs_and_capitals_count_nothing() -> None:
    assert words_of("The dog, running - on Grass!") == ["the", "dog", "running", "on", "grass"]

"""Cross-lingual paraphrases: labels by the sentences' records, languages and shares."""

from __future__ import annotations

from typing import Any

from workbench.core.keyed import Draws
from workbench.objectives.translation_match import TranslationMatch

EXCUSED = "the samples of the contracts have no translations"
LANGUAGES = ("cs", "de", "en")


def samples(count: int) -> list[dict[str, Any]]:
    texts = [{language: f"{language} {i}" for language in LANGUAGES} for i in range(count)]
    return [{"key": str(i), "draw": (0, i), "translations": each} for i, each in enumerate(texts)]


def arranged(given: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    objective = TranslationMatch(**options)
    objective.name = "it"
    return objective.arrange(given, Draws(0, "task", "it", number=(0,)))


def test_a_sentence_of_another_record_is_labelled() -> None:
    given = samples(400)
    found = arranged(given)
    strange = 0
    for before, after in zip(given, found, strict=True):
        own = [
            after["translations"][name] == text
            for name, text in before["translations"].items()
            if name in after["translations"]
        ]
        assert all(text.startswith(name) for name, text in after["translations"].items())
        assert after["labels"]["it"] == int(not all(own))
        if after["labels"]["it"]:
            assert sorted(own) == [False, True]
            strange += 1
    assert abs(strange - 200) < 4 * 100**0.5


def test_what_cannot_be_exchanged_has_no_label() -> None:
    alone = {"key": "a", "draw": (0, 0), "translations": {"en": "one"}}
    assert arranged([alone])[0]["labels"]["it"] == -100
    apart = [
        {**sample, "translations": dict(pair)}
        for sample, pair in zip(samples(2), ([("en", "x"), ("de", "y")], [("fr", "z"), ("cs", "w")]), strict=True)
    ]
    assert [sample["labels"]["it"] for sample in arranged(apart, random=1.0)] == [-100, -100]

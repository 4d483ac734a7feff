"""The rules of WordNet for inflected words."""

from __future__ import annotations

import pytest

from kg.lexicons.base_forms import base_forms


@pytest.mark.parametrize(
    ("word", "part_of_speech", "base"),
    [
        ("dogs", "noun", "dog"),
        ("boxes", "noun", "box"),
        ("churches", "noun", "church"),
        ("wolves", "noun", "wolf"),
        ("fishermen", "noun", "fisherman"),
        ("cities", "noun", "city"),
        ("sighed", "verb", "sigh"),
        ("loved", "verb", "love"),
        ("making", "verb", "make"),
        ("carries", "verb", "carry"),
        ("colder", "adj", "cold"),
        ("largest", "adj", "large"),
    ],
)
def test_base_forms(word: str, part_of_speech: str, base: str) -> None:
    found = base_forms(word, part_of_speech)
    assert found[0] == word
    assert base in found[1:]


def test_other_words_have_one_form() -> None:
    assert base_forms("slowly", "adv") == ["slowly"]
    assert base_forms("dogs", "") == ["dogs"]
    assert base_forms("s", "noun") == ["s"]
    assert base_forms("sighed", "noun") == ["sighed"]

"""Finding names: offsets, boundaries, longest match."""

from __future__ import annotations

import pickle
import sys

from kg.linking.folding import fold
from kg.linking.gazetteer import Gazetteer, spellings


def found(names, text, case="ignore"):
    gazetteer = Gazetteer(list(dict.fromkeys(s for n in names for s in spellings(n, case))), case)
    return [text[start:end] for _, start, end in gazetteer.find(fold(text, case))]


def test_folding_never_shifts():
    every = "".join(chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF)
    for case in ("ignore", "exact"):
        assert len(fold(every, case)) == len(every)
    assert fold("ΟΔΟΣ οδος İstanbul", "ignore") == fold("οδοσ ΟΔΟΣ istanbul", "ignore")
    assert fold("New\nYork\u2019s", "exact") == "New York's"


def test_offsets_are_characters_of_the_text():
    text = "İzmir 😀 und KÖLN—München,\nNew\u00a0York!"
    assert found(["köln", "New York", "izmir", "münchen"], text) == ["İzmir", "KÖLN", "München", "New\u00a0York"]
    assert found(["köln", "New York", "München"], text, "exact") == ["München", "New\u00a0York"]


def test_composed_and_decomposed_letters():
    assert found(["Škoda"], "S\u030ckoda and Škoda") == ["S\u030ckoda", "Škoda"]
    assert found(["cafe"], "cafe\u0301 cafe") == ["cafe"]


def test_words_are_not_broken():
    assert found(["york", "new york", "new"], "New Yorker, Newark, new york_ new-york") == ["New", "new", "new", "york"]
    assert found(["us an", "and Y"], "thus and Y") == ["and Y"]
    assert found(["O'Brien", "C++", "St. Louis"], "O’Brien writes C++ in St. Louis.") == ["O’Brien", "C++", "St. Louis"]


def test_names_in_tokenised_texts():
    names = ["Washington, D.C.", "Jean-Paul Sartre", "O'Brien"]
    text = "washington , d . c . , jean - paul sartre and o ' brien ; Jean-Paul Sartre"
    assert found(names, text) == ["washington , d . c .", "jean - paul sartre", "o ' brien", "Jean-Paul Sartre"]
    assert spellings("cafe\u0301", "ignore") == ["café", "cafe\u0301"], "an accent is no sign of its own"


def test_scripts_without_spaces():
    assert found(["北京", "北京大学", "大学"], "我在北京大学和北京學習") == ["北京大学", "北京"]
    assert found(["東京", "タワー"], "東京タワーへ") == ["東京", "タワー"]
    assert found(["Python"], "用Python写") == ["Python"]
    assert found(["กา"], "กาก้ากา") == ["กา", "กา"]
    assert found(["서울"], "서울 서울은") == ["서울"]


def test_pickles_without_the_automaton():
    gazetteer = Gazetteer(["a b", "b"], "exact")
    assert gazetteer.find("a bc b") == [(1, 5, 6)]
    again = pickle.loads(pickle.dumps(gazetteer))
    assert again.find("a bc b") == [(1, 5, 6)]
    assert (again.number("b"), again.number("c")) == (1, -1)

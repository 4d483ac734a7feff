"""Finding names: offsets, boundaries, longest match."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from kg.linking.folding import fold, read
from kg.linking.gazetteer import Gazetteer, spellings
from kg.linking.linker import Linker


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


READ_OVER = {
    "Hewlett\u2013Packard and Hewlett\u2011Packard": ["Hewlett\u2013Packard", "Hewlett\u2011Packard"],
    "in New  York, New \t York, New \n York": ["New  York", "New \t York", "New \n York"],
    "to New\u00a0 York and \u200eNew\u2009York\u200f": ["New\u00a0 York", "New\u2009York"],
    "in New\u200bYork": ["New\u200bYork"],
    "New\u200bYork, New\u200b York": ["New\u200bYork", "New\u200b York"],
    "Pa\u00adris, \ufeffPa\u200dris, Par\u200bis": ["Pa\u00adris", "Pa\u200dris", "Par\u200bis"],
    "ＮｅｗＹｏｒｋ, Ｎｅｗ\u3000Ｙｏｒｋ, ＰＡＲＩＳ": ["Ｎｅｗ\u3000Ｙｏｒｋ", "ＰＡＲＩＳ"],
    "New\n\nYork, New\n \nYork": [],
    "ASP.NET .NET (.NET) x.NET .NET": [".NET", ".NET", ".NET"],
}


@pytest.mark.parametrize("text", READ_OVER)
def test_what_people_read_over(text):
    names = ["Hewlett-Packard", "New York", "Paris", ".NET"]
    linker = Linker.from_names([(name, name, 1.0) for name in names])
    assert [text[start:end] for start, end, _, _ in linker.link(text)] == READ_OVER[text]
    seen = read(text)
    again = [(*seen.before(start, end), *link) for start, end, *link in linker.link(seen.text)]
    assert linker.link(text) == again, "the same links as in the text that people see"
    inside = linker.link(f"Paris {text}", inside=[(6, 6 + len(text))])
    assert [(start - 6, end - 6, entity) for start, end, entity, _ in inside] == [link[:3] for link in again]


def test_names_are_written_with_signs_too():
    linker = Linker.from_names([("Hewlett\u2013Pack\u00adard", "hp", 1.0), ("New  York\u200e", "ny", 1.0)])
    text = "Hewlett-Packard in New York"
    assert [(text[a:b], entity) for a, b, entity, _ in linker.link(text)] == [
        ("Hewlett-Packard", "hp"),
        ("New York", "ny"),
    ]
    assert linker.candidates("Hewlett\u2011Packard") == [("hp", 1.0)]


@pytest.mark.parametrize("seed", range(20))
def test_places_of_what_is_read(seed):
    rng = np.random.default_rng(seed)
    signs = [*"abAé1 \t\n\r", "\u00a0", "\u200b", "\u00ad", "\u200d", "\ufeff", "\U0001f600", "北", "\ud800"]
    text = "".join(rng.choice(signs, size=200))
    seen = read(text)
    left_out = set(seen.left_out)
    places = [place for place in range(len(text)) if place not in left_out]
    assert len(places) == len(seen.text)
    assert all(
        a == b or (a, b) == (" ", "\u200b") for a, b in zip(seen.text, map(text.__getitem__, places), strict=True)
    )
    assert read(seen.text).text == seen.text
    for start in range(len(seen.text)):
        assert seen.now(*seen.before(start, start + 1)) == (start, start + 1)
    assert all(text[i].isspace() or text[i] in "\u200b\u00ad\u200d\ufeff" for i in left_out)

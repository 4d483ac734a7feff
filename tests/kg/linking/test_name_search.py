"""Both ways of finding names, in texts with spaces and in all texts, find the same as a search of every place."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from kg.linking.boundaries import boundary, in_word, is_sign
from kg.linking.folding import fold
from kg.linking.gazetteer import Gazetteer, spellings
from kg.linking.names import NameIndex
from kg.linking.spaced_names import SpacedNames
from kg.linking.unspaced_names import UnspacedNames

ALPHABETS = [
    "ab ",
    "ab c-",
    "a'. -(",
    "ab .!?",
    "aB_1 '",
    "\u00df\u00c5\u0130a ,\u2013\u201c\u2019",  # letters and signs beyond ASCII, one whose case folds
    "a\u044f \U0001f600\u00a0-",  # Cyrillic, a sign beyond the basic plane, a space that is none of ASCII
    "e\u0301a ' ",  # a combining mark, in front of words and signs too
    "ab \u4e2d\u570b-a",  # Han between words
    "\u4e2da",
    "\u0e01\u0e49\u0e32ab ",  # Thai with marks of its own
    "a \uc11c\uc6b8 \u4e2d",  # Hangul, which has spaces
]


def plain_find(names, folded):
    """Every boundary from the left, every length from the longest."""
    numbers, places, start = {name: i for i, name in enumerate(names)}, [], 0
    longest = max(map(len, names))
    while start < len(folded):
        for stop in range(min(len(folded), start + longest), start, -1):
            if not (folded[start:stop] in numbers and boundary(folded, start) and boundary(folded, stop)):
                continue
            behind_a_word = start > 0 and in_word(folded[start - 1])
            if not (behind_a_word and stop > start + 1 and is_sign(folded[start]) and in_word(folded[start + 1])):
                places.append((numbers[folded[start:stop]], start, stop))
                break
        start = places[-1][2] if places and places[-1][2] > start else start + 1
    return places


@pytest.mark.parametrize("case", ["ignore", "exact"])
@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.slow)])
def test_against_a_search_of_every_place(seeds, alphabet, case):
    for seed in seeds:
        against_a_search_of_every_place(seed, alphabet, case)


def against_a_search_of_every_place(seed, alphabet, case):
    rng = np.random.default_rng(seed)
    letters = list(alphabet) + (list(ALPHABETS[rng.integers(len(ALPHABETS))]) if seed % 3 == 0 else [])

    def text(longest):
        return fold("".join(rng.choice(letters, size=rng.integers(1, longest))), case)

    names = list(dict.fromkeys(s for _ in range(25) for s in spellings(text(10), case) if s))
    index = NameIndex(names)
    anywhere, spaced = UnspacedNames(index), SpacedNames(index, case)
    opened = SpacedNames(NameIndex(names, index.arrays), case, spaced.arrays())
    for _ in range(12):
        folded = text(60)
        wanted = plain_find(names, folded)
        assert anywhere.find(folded) == wanted, seed
        assert spaced.find(folded) == wanted, seed
        assert opened.find(folded) == wanted, seed
        assert Gazetteer(names, case).find(folded) == wanted, seed


NAMES = [
    "york",
    "new york",
    "saint-denis",
    "saint denis",
    "st.",
    "st",
    "'ain",
    "(x) y",
    "!!",
    "c++",
    "北京",
    "t恤",
    "恤 a",
    ".net",
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("new yorker, new-york; newyork", ["york"]),
        ("saint-denis saint denis saint,denis", ["saint-denis", "saint denis"]),
        ("st.york st york st. york", ["st.", "york", "st", "york", "st.", "york"]),
        ("l'ain 'ain ' ain, (l)'ain 北'ain", ["'ain", "'ain", "'ain"]),
        ("asp.net .net (.net) c.net .net.net 用.net", [".net", ".net", ".net", ".net"]),
        ("(x) york (x) y", ["york", "(x) y"]),
        ("york!!york!", ["york", "!!", "york"]),
        ("c++c++, c+ +", ["c++", "c++"]),
        ("new york 北京 york北京york", ["new york", "北京", "york", "北京", "york"]),
        ("a t恤 at恤 恤 a恤 ab", ["t恤", "恤 a"]),
        ("– york—york …york\u0301 \u0301york", ["york", "york"]),
        ("york", ["york"]),
        ("", []),
    ],
)
def test_words_signs_and_other_scripts(text, found):
    index = NameIndex(NAMES)
    places = SpacedNames(index, "exact").find(text)
    assert [text[start:end] for _, start, end in places] == found
    assert [NAMES[number] for number, _, _ in places] == found
    assert places == UnspacedNames(index).find(text) == plain_find(NAMES, text)
    assert places == SpacedNames(index, "exact", SpacedNames(index, "exact").arrays()).find(text)


def test_an_automaton_is_built_when_a_text_asks_for_it():
    gazetteer = Gazetteer(NAMES, "ignore")
    assert gazetteer.find("from new york or york to 北京 by train") == [(1, 5, 13), (0, 17, 21), (10, 25, 27)]
    assert "_anywhere" not in vars(gazetteer), "a few characters of another script need no automaton of all names"
    gazetteer = Gazetteer(NAMES, "ignore")
    assert gazetteer.find("我在北京, 在 york") == [(10, 2, 4), (0, 8, 12)]
    assert "_spaced" not in vars(gazetteer)


@pytest.mark.parametrize("seed", range(4))
def test_letters_that_share_codes(seed):
    """More letters than there are codes: words that read the same, and are not."""
    rng = np.random.default_rng(seed)
    first = ord("\uac00")  # Hangul syllables; every 64th may share a code

    def word():
        return "".join(chr(first + 64 * rng.integers(10) + rng.integers(4 if seed else 64)) for _ in range(2))

    words = [word() for _ in range(500)]
    names = list(dict.fromkeys([*words[:400], *(f"{a} {b}" for a, b in pairwise(words))]))
    index = NameIndex(names)
    texts = [" ".join(str(rng.choice([word(), str(rng.choice(words))])) for _ in range(20)) for _ in range(20)]
    spaced = SpacedNames(index, "exact")
    wanted = [plain_find(names, text) for text in texts]
    assert [spaced.find(text) for text in texts] == wanted
    opened = SpacedNames(index, "exact", spaced.arrays())
    assert [opened.find(text) for text in texts] == wanted

"""All rules of linking at once, in random texts of mixed scripts, against a plain search of every place.

It shares no code with the linker but the spellings of names and the cutting of Chinese into words.
"""

from __future__ import annotations

import re
import sys
import unicodedata

import numpy as np
import pytest

from kg.linking.boundaries import boundary
from kg.linking.codes import BLANK, NO_SPACES, SHARED, SIGN, Codes
from kg.linking.folding import fold
from kg.linking.gazetteer import spellings
from kg.linking.lexicon import Lexicon
from kg.linking.linker import Linker

MARKS = "\u0301\u0e49"
UNSPACED = "中国北京上タ\u0e01\u0e17"
LETTERS = "abABstßéÉσςΣяЯİ서울1_"
SIGNS = "   \t\n\u00a0.,-–'’(!😀"
UNSEEN = "\u00ad\u200d\u200e\ufeff"
LIKELY = {"small": 0.12, "word": 0.25, "words": 0.65}


def plain_fold(text: str, case: str) -> str:
    text = re.sub("[\t\n\u00a0]", " ", text).replace("’", "'").replace("–", "-").replace("Ａ", "A").replace("ｂ", "b")
    return text if case == "exact" else "".join({"İ": "i", "ς": "σ"}.get(c, c.lower()) for c in text)


def plain_read(text: str) -> tuple[str, list[int]]:
    """What people see of a text, and where it was."""
    seen = []
    for i, c in enumerate(text):
        if c == "\u200b":
            left, right = text[i - 1 : i] if i else "", text[i + 1 : i + 2]
            c = " " if (left.islower() or left.isdigit()) and right.isupper() else ""
        if c and c not in UNSEEN:
            seen.append((c, i))
    kept, i = [], 0
    while i < len(seen):
        stop = i
        while stop < len(seen) and seen[stop][0].isspace():
            stop += 1
        blanks = seen[i:stop]
        kept += (blanks if sum(c == "\n" for c, _ in blanks) > 1 else blanks[:1]) or [seen[i]]
        i = max(stop, i + 1)
    return "".join(c for c, _ in kept), [place for _, place in kept]


def joining(text: str, i: int) -> bool:
    """Whether there is a sign between two words."""
    if not 0 < i < len(text) - 1 or text[i] in UNSPACED + MARKS or text[i].isalnum() or text[i] in " _":
        return False
    return all((c.isalnum() or c in MARKS or c == "_") and c not in UNSPACED for c in (text[i - 1], text[i + 1]))


def apart(left: str, right: str) -> bool:
    """Whether a name may end between two characters and another begin."""
    if not left or not right:
        return True
    if right in MARKS:
        return not (left in MARKS or left in UNSPACED or left in LETTERS or left.isalnum())
    words = [(c.isalnum() or c in MARKS or c == "_") and c not in UNSPACED for c in (left, right)]
    return not all(words)


def plain_links(text: str, known: dict[str, str], case: str, lexicon: Lexicon | None) -> list[tuple]:
    """The longest name at each place from the left, with what it is worth."""
    text, places = plain_read(text)
    folded, links, start = plain_fold(text, case), [], 0
    inner = lexicon.within(folded, range(len(folded) + 1)) if lexicon is not None else set()
    ends = [i for i in range(len(text) + 1) if apart(folded[i - 1 : i] if i else "", folded[i : i + 1])]
    ends = [i for i in ends if i not in inner]
    while start < len(text):
        stops = [end for end in ends if end > start and folded[start:end] in known] if start in ends else []
        stops = [end for end in stops if end == start + 1 or not joining(folded, start)]
        if not stops:
            start += 1
            continue
        name = known[folded[start : stops[-1]]]
        likely = LIKELY["small" if name.islower() else "words" if " " in name.strip() else "word"]
        capitals = text != plain_fold(text, case) and not text.islower()
        if case == "ignore" and capitals and text[start].islower():
            likely = min(likely, LIKELY["small"])
        links.append((places[start], places[stops[-1] - 1] + 1, name, likely))
        start = stops[-1]
    return links


@pytest.mark.parametrize("case", ["ignore", "exact"])
@pytest.mark.parametrize("seed", range(40))
def test_links_are_those_of_a_plain_search(seed: int, case: str) -> None:
    rng = np.random.default_rng(seed)
    kinds = [LETTERS[:4] + "Ａｂ", LETTERS, SIGNS, UNSPACED, MARKS]

    def drawn(longest: int, shares: np.ndarray) -> str:
        chosen = rng.choice(len(kinds), size=rng.integers(1, longest), p=shares)
        return "".join(str(rng.choice(list(kinds[kind]))) for kind in chosen)

    known: dict[str, str] = {}
    for shares in rng.dirichlet([2, 1, 1, 1, 0.2], size=30):
        name = drawn(6, shares).strip()
        spelt = spellings(name, "ignore") if name else [""]
        if all(spelt) and not known.keys() & {way for c in ("ignore", "exact") for way in spellings(name, c)}:
            known |= dict.fromkeys(spellings(name, case), name)
    words = [name for name in known if len(name) > 1 and set(name) <= set(UNSPACED)] + ["北京", "中国", "国北"]
    lexicon = Lexicon(list(dict.fromkeys(words)), np.arange(1.0, 1 + len(set(words)))) if seed % 2 else None
    names = list(dict.fromkeys(known.values()))
    linker = Linker.from_names([(n, n, 1.0) for n in names], case=case, min_length=1, lexicon=lexicon)
    texts: list[str] = []
    for shares in rng.dirichlet([2, 1, 1, 1, 0.2], size=40):
        text = drawn(50, shares)
        if rng.random() < 0.5:
            text = "".join(str(rng.choice(names)) + str(rng.choice(list(SIGNS + "a中"))) for _ in range(6))
        if rng.random() < 0.5:  # what nobody sees
            text = "".join(c + str(rng.choice(["", "", "", "\u200b", *UNSEEN, " "])) for c in text)
        wanted = [(a, b, e, pytest.approx(p)) for a, b, e, p in plain_links(text, known, case, lexicon)]
        assert linker.link(text) == wanted, (names, text)
        assert linker.link(text) == wanted, "again, with what is known by now of the names"
        texts.append(text)
    assert list(linker.link_many(texts)) == [linker.link(text) for text in texts]


@pytest.mark.slow
def test_codes_know_where_words_are() -> None:
    """For every character there is: it is in a word, of a script without spaces, or neither, as `boundary` has it."""
    every = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]
    known = Codes(["żółć", "москва"], "exact")
    known.mark_signs("!☃")
    codes = known("".join(every))
    for character, code in zip(fold("".join(every), "exact"), codes, strict=True):
        joined = not boundary("a" + character, 1), not boundary(character + "a", 1)
        assert joined == ((False, False) if code in (NO_SPACES, SIGN, BLANK) else (True, True)), hex(ord(character))
        mark = unicodedata.category(character).startswith("M")
        assert (code == NO_SPACES) == (not mark and not boundary(character + "\u0301", 1) and not any(joined))
    assert codes[ord("!")] == codes[every.index("☃")] == SIGN
    assert len(set(Codes(["żółć"], "exact")("żółć"))) == 4
    assert max(Codes(["żółć"], "exact")("żółć")) < SHARED <= min(Codes(["żółć"], "exact")("ж"))


@pytest.mark.parametrize("case", ["ignore", "exact"])
def test_boundaries_are_those_of_the_folded_text(case: str) -> None:
    every = [chr(c) for c in range(0x20000) if not 0xD800 <= c <= 0xDFFF]
    text = "".join(f"{character}a{character}\u0301{character}中" for character in every)
    folded = fold(text, case)
    assert not [i for i in range(len(text)) if boundary(text, i) != boundary(folded, i)]

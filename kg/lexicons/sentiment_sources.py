"""Readers of the polarity of words by part of speech and sense: SentiWordNet, TextBlob's and pattern's XML.

    a\t00005205\t0.5\t0\tabsolute#1\tperfect or complete          SentiWordNet 3.0 (Baccianella et al., LREC 2010)
    <word form="absolute" pos="JJ" polarity="0.2" ... />           en-sentiment.xml (De Smedt & Daelemans 2012)

SentiLR takes SentiWordNet's. WordNet's index.sense (senseidx(5WN)) counts each sense in tagged text.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from workbench.core.errors import WorkbenchError

Key = tuple[str, str]
"""A word and its part of speech: n, v, a or r."""
_PARTS_OF_SPEECH = {"n": "n", "v": "v", "a": "a", "s": "a", "r": "r"}
_TAGS = {"JJ": "a", "NN": "n", "RB": "r", "VB": "v"}
_TYPES = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
"""Parts of speech of lemmas in index.sense."""
SEVERAL, OTHER = "a name of several words", "a part of speech other than n, v, a and r"


class Sense(NamedTuple):
    """The polarity of a word in one sense; senses of a smaller rank are commoner."""

    word: str
    part: str
    rank: int
    polarity: float


class Polarities:
    """The senses of words, and how many were left out, by reason."""

    def __init__(self) -> None:
        self.senses: defaultdict[Key, list[Sense]] = defaultdict(list)
        self.counts: Counter[Key] = Counter()
        self.left_out: Counter[str] = Counter()

    def add(self, sense: Sense) -> None:
        """One more sense."""
        if " " in sense.word or "_" in sense.word:
            self.left_out[SEVERAL] += 1
        else:
            self.senses[sense.word.lower(), sense.part].append(sense)

    def rows(self) -> Iterator[tuple[str, str, float]]:
        """Word, part of speech and polarity, sorted by words; of a word the commonest part of speech first, or that of
        the most senses; of that the senses by rank. A word that is only counted has 0."""
        keys = self.senses.keys() | self.counts.keys()
        for word, part in sorted(keys, key=self._order):
            known = sorted(self.senses.get((word, part), ()), key=lambda sense: sense.rank)
            yield from ((word, part, sense.polarity) for sense in known)
            if not known:
                yield word, part, 0.0

    def _order(self, key: Key) -> tuple[str, int, int, int]:
        return key[0], -self.counts[key], -len(self.senses.get(key, ())), "nvar".index(key[1])


def read_polarities(path: Path, senses: Path | None = None) -> Polarities:
    """The senses of a lexicon; with those of WordNet's index.sense words without a polarity, and what is common.

    Raises:
        WorkbenchError: a file is missing, no lexicon of these, or damaged; says where.
    """
    found = Polarities()
    text = _text(path)
    for sense in _of_xml(text, path, found) if text.lstrip().startswith("<") else _of_sentiwordnet(text, path):
        found.add(sense)
    if not found.senses:
        raise WorkbenchError(f"{path} has no word with a polarity; allowed: SentiWordNet's text, or TextBlob's XML")
    if senses is not None:
        _count(senses, found)
    return found


def _of_sentiwordnet(text: str, path: Path) -> Iterator[Sense]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            part, _, positive, negative, terms, *_ = line.split("\t")
            polarity = float(positive) - float(negative)
            ranked = [(word, int(rank)) for word, _, rank in (term.rpartition("#") for term in terms.split())]
            if not math.isfinite(polarity) or not ranked or not all(word for word, _ in ranked):
                raise ValueError
            yield from (Sense(word, _PARTS_OF_SPEECH[part], rank, polarity) for word, rank in ranked)
        except (ValueError, KeyError):
            raise WorkbenchError(
                f"{path}, line {number}: {line[:80]!r} is no line of SentiWordNet (part of speech, id, positive and "
                "negative score, words as able#1, gloss, separated by tabs)"
            ) from None


def _of_xml(text: str, path: Path, found: Polarities) -> Iterator[Sense]:
    try:
        words = list(ElementTree.fromstring(text).iter("word"))
    except ElementTree.ParseError as error:
        raise WorkbenchError(f"{path} is damaged, or no XML ({error}); get it again") from error
    for rank, element in enumerate(words):  # of one word they stand in the order of its senses
        part, form = _TAGS.get(element.get("pos", "")[:2]), element.get("form", "").strip()
        try:
            polarity = float(element.get("polarity", 0))
            if not math.isfinite(polarity) or not form:
                raise ValueError
        except ValueError:
            raise WorkbenchError(
                f"{path}, word {rank + 1}: {dict(element.items())} has no form, or a polarity that is no number"
            ) from None
        if part is None:
            found.left_out[OTHER] += 1
        else:
            yield Sense(form, part, rank, polarity)


def _count(path: Path, found: Polarities) -> None:
    """Add how often words stand in tagged text, from lines `lemma%type:...`, place, number of the sense, count."""
    for number, line in enumerate(_text(path).splitlines(), start=1):
        try:
            sense, _, _, count = line.split()
            lemma, _, rest = sense.partition("%")
            part, times = _TYPES[rest[:1]], int(count)
        except (ValueError, KeyError):
            raise WorkbenchError(
                f"{path}, line {number}: {line[:80]!r} is no line of WordNet's index.sense (lemma%type:..., place, "
                "number of the sense, count)"
            ) from None
        if "_" not in lemma:
            found.counts[lemma, part] += times


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise WorkbenchError(f"{path}: {error.strerror or error}; name a file that is there") from error
    except ValueError as error:
        raise WorkbenchError(f"{path} is not in UTF-8 ({error})") from error

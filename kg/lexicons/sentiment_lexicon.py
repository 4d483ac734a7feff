"""A sentiment lexicon: polarity by word and part of speech, from a table in text.

A line is `word<tab>part of speech<tab>polarity`: the part of speech n, v, a or r (as in WordNet), the polarity a
number, negative below 0. Rows of one word and part of speech are its senses, the commonest first: their prior polarity
is

    s = sum over k of s_k / k  /  sum over k of 1 / k

(SentiWordNet's, Baccianella et al. 2010). The first row of a word also says what part of speech it mostly is. Rows of
both signs may be senses, or a list that contradicts itself: `SentimentLexicon.mixed` names them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from kg.lexicons.base_forms import base_forms
from workbench.core.errors import WorkbenchError

PARTS_OF_SPEECH = ("v", "a", "r", "n", "u")
"""Verb, adjective, adverb, noun, any other or unknown: the numbers of the field `part_of_speech_ids`."""
POLARITIES = ("negative", "positive", "neutral")
"""The numbers of the field `polarity_ids`."""
OTHER, NEUTRAL = PARTS_OF_SPEECH.index("u"), POLARITIES.index("neutral")
_NAMES = {"v": "verb", "a": "adj", "r": "adv", "n": "noun"}


class WordSentiment(NamedTuple):
    """A word's part of speech and polarity, as places in `PARTS_OF_SPEECH` and `POLARITIES`."""

    part: int
    polarity: int

    @property
    def tag(self) -> str:
        """As it is stored: `a:negative`."""
        return f"{PARTS_OF_SPEECH[self.part]}:{POLARITIES[self.polarity]}"


UNKNOWN = WordSentiment(OTHER, NEUTRAL)
TAGS = {
    WordSentiment(p, s).tag: WordSentiment(p, s) for p in range(len(PARTS_OF_SPEECH)) for s in range(len(POLARITIES))
}


class SentimentLexicon:
    """The part of speech and the polarity of words, and of their inflected forms.

    Attributes:
        mixed: words with their part of speech, `good (a)`, that have rows of a negative and of a positive polarity.
    """

    def __init__(self, rows: list[tuple[str, str, float]]) -> None:
        senses: dict[str, dict[str, list[float]]] = {}
        for word, part, score in rows:
            senses.setdefault(word.lower(), {}).setdefault(part, []).append(score)
        self._known = {
            word: {
                part: WordSentiment(PARTS_OF_SPEECH.index(part), _polarity(scores)) for part, scores in parts.items()
            }
            for word, parts in senses.items()
        }
        self.mixed = [
            f"{word} ({part})"
            for word, parts in senses.items()
            for part, scores in parts.items()
            if min(scores) < 0 < max(scores)
        ]

    def __len__(self) -> int:
        return len(self._known)

    def of(self, word: str) -> WordSentiment:
        """The sentiment of a word: as it is spelt, or else of its first base form in the table."""
        small = word.lower()
        if small in self._known:
            return next(iter(self._known[small].values()))
        bases = ((part, form) for part in PARTS_OF_SPEECH[:-1] for form in base_forms(small, _NAMES[part])[1:])
        return next((known for part, form in bases if (known := self._known.get(form, {}).get(part))), UNKNOWN)


def read_sentiment_lexicon(path: str | Path) -> SentimentLexicon:
    """
    Raises:
        WorkbenchError: there is no such file, a line has not these three columns, or no line is there.
    """
    rows = []
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise WorkbenchError(f"sentiment lexicon {path}: {error.strerror or error}; name a table of words") from error
    except ValueError as error:
        raise WorkbenchError(f"sentiment lexicon {path} is not in UTF-8 ({error})") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            rows.append(_row(line.split("\t"), f"{path}:{number}"))
    if not rows:
        raise WorkbenchError(f"{path} has no line; a sentiment lexicon has word, part of speech and polarity in each")
    return SentimentLexicon(rows)


def _row(columns: list[str], where: str) -> tuple[str, str, float]:
    try:
        word, part, score = (column.strip() for column in columns)
        if not word or part not in PARTS_OF_SPEECH[:-1] or not math.isfinite(float(score)):
            raise ValueError
        return word, part, float(score)
    except ValueError:
        found = "<tab>".join(columns)[:80]
        raise WorkbenchError(
            f"{where}: expected word<tab>part of speech<tab>polarity, with n, v, a or r and a number, found {found!r}"
        ) from None


def _polarity(scores: list[float]) -> int:
    prior = sum(score / rank for rank, score in enumerate(scores, start=1))
    return NEUTRAL if prior == 0 else POLARITIES.index("positive" if prior > 0 else "negative")

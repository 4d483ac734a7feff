"""Phrases by the statistics of a corpus: words that occur together more often than chance predicts.

A pair of neighbouring words is a phrase if its normalised pointwise mutual information (Bouma, GSCL 2009) is high
enough. Pairs of phrases and words are joined in a second pass, so that a phrase has two to four words (Mikolov et al.,
arXiv:1310.4546, section 4, with gensim). A word is a run of letters and digits, or one character in scripts without
spaces; no phrase crosses a punctuation mark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer
from annotated_types import Ge, Le

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Number
from workbench.text.sentences import SPACELESS

if TYPE_CHECKING:
    from gensim.models.phrases import FrozenPhrases

_WORD = re.compile(rf"[{SPACELESS}]|[^\W_{SPACELESS}]+(?:['’-][^\W_{SPACELESS}]+)*")
_APART = re.compile(r"[^\s]")
_JOINED = (
    "\x1f",
    "\x1e",
)  # the delimiter of words in a phrase, by pass: gensim splits a phrase at its own delimiter only
Spans = list[list[int]]
Association = Annotated[Number, Ge(-1), Le(1)]


@dataclass(frozen=True, kw_only=True)
class CollocationOptions:
    """The criteria of a phrase."""

    min_count: Annotated[Count, typer.Option(help="Pairs that occur less often are not phrases (statistics).")] = 5
    threshold: Annotated[
        Association, typer.Option(help="Least normalised mutual information, -1 to 1 (statistics).")
    ] = 0.5


@dataclass(frozen=True)
class Collocations:
    """The phrases that were found in a corpus, pairs first."""

    passes: Sequence[FrozenPhrases] = field(repr=False)

    @classmethod
    def of(cls, texts: Iterable[str], options: CollocationOptions) -> Collocations:
        """The phrases of the texts, which are read twice.

        Raises:
            WorkbenchError: gensim is not installed.
        """
        try:
            from gensim.models.phrases import Phrases
        except ModuleNotFoundError as error:
            raise WorkbenchError(
                "finding phrases by statistics needs the package 'gensim': pip install 'pretraining-workbench[text]'"
            ) from error
        logging.getLogger("gensim").setLevel(logging.WARNING)
        passes: list[FrozenPhrases] = []
        for delimiter in _JOINED:
            sentences = (_joined(words, passes) for text in texts for words, _ in sentences_of(text))
            found = Phrases(
                sentences,
                min_count=options.min_count,
                threshold=options.threshold,
                scoring="npmi",
                delimiter=delimiter,
                max_vocab_size=1 << 40,  # gensim would forget rare pairs, depending on the order of the texts
            )
            passes.append(found.freeze())
        return cls(tuple(passes))

    def __len__(self) -> int:
        return sum(len(found.phrasegrams) for found in self.passes)

    def spans(self, text: str) -> Spans:
        """The spans [start, end) of the phrases in a text, in characters, in order."""
        found = []
        for words, places in sentences_of(text):
            first = 0
            for unit in _joined(words, self.passes):
                last = first + sum(map(unit.count, _JOINED))
                if last > first:
                    found.append([places[first][0], places[last][1]])
                first = last + 1
        return found


def sentences_of(text: str) -> Iterator[tuple[list[str], Spans]]:
    """The case-folded words between punctuation marks, and their spans."""
    words: list[str] = []
    places: Spans = []
    for match in _WORD.finditer(text):
        if places and _APART.search(text, places[-1][1], match.start()):
            yield words, places
            words, places = [], []
        words.append(match[0].casefold())
        places.append([*match.span()])
    if words:
        yield words, places


def _joined(words: list[str], passes: Sequence[FrozenPhrases]) -> list[str]:
    """The words, where the words of a phrase are joined."""
    for found in passes:
        words = found[words]
    return words

"""Scores of generated texts against references, as the field's libraries compute them: BLEU, chrF, ROUGE.

BLEU (Papineni et al., ACL 2002) and chrF (Popović, WMT 2015) are those of sacrebleu (Post, arXiv:1804.08771), whose
signature records how texts were split. ROUGE (Lin, 2004) is the F1 of rouge-score: 1, 2, L over the whole text, and
Lsum, which is the L of papers on summaries: over sentences, each compared with the whole other text. English is split
and stemmed as in rouge-score; words of other scripts stay whole, and characters of scripts without spaces are words.
All are from 0 to 100, as papers print them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

import numpy as np

from workbench.core.packages import library
from workbench.metrics.tallies import Tally
from workbench.text.sentences import sentences_apart, words_apart

Splitting = Literal["13a", "intl", "zh", "char", "none"]
"""sacrebleu's tokenizers: 13a is that of the WMT, `none` uses the given words."""
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class TextScores(NamedTuple):
    """`numbers` by name; `signature` records how they were computed, `tallies` the contributions of each text."""

    numbers: dict[str, float]
    signature: str
    tallies: dict[str, Tally]


def text_scores(
    predictions: Sequence[str], references: Sequence[str], *, tokenize: Splitting = "13a", lowercase: bool = False
) -> TextScores:
    """The scores of texts, each compared with one reference.

    Args:
        tokenize: for BLEU.
        lowercase: for BLEU and chrF, ignore case; ROUGE always ignores it.

    Raises:
        WorkbenchError: a library is not installed.
    """
    metrics, scorer = _library("sacrebleu.metrics"), _library("rouge_score.rouge_scorer")
    bleu, chrf = metrics.BLEU(tokenize=tokenize, lowercase=lowercase), metrics.CHRF(lowercase=lowercase)
    numbers = {
        name: float(metric.corpus_score(list(predictions), [list(references)]).score)
        for name, metric in (("bleu", bleu), ("chrf", chrf))
    }
    of_texts = {
        "bleu": Tally("bleu", bleu_rows(bleu, predictions, [[text] for text in references])),
        "chrf": Tally("chrf", np.array(statistics_of(chrf, predictions, [references]), float)),
    }
    rouge = scorer.RougeScorer(ROUGE, tokenizer=_Words(_library("rouge_score.tokenizers").DefaultTokenizer(True)))
    pairs = zip(map(_by_line, references), map(_by_line, predictions), strict=True)
    each = [rouge.score(wanted, made) for wanted, made in pairs]
    of_rouge = {name: [100 * one[name].fmeasure for one in each] for name in ROUGE}
    numbers |= {name: statistics.fmean(of) for name, of in of_rouge.items()}
    tallies = of_texts | {name: Tally.mean(of) for name, of in of_rouge.items()}
    counts = (
        f"BLEU {bleu.get_signature()}; chrF {chrf.get_signature()}; ROUGE F1, stemmed, version:{version('rouge-score')}"
    )
    return TextScores(numbers, counts, tallies)


def bleu_rows(bleu: Any, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """The contribution of each text to sacrebleu's BLEU, as a row of a tally of `bleu` [texts, 2 orders + 2].

    Args:
        references: one or more for each text.
    """
    most = max(map(len, references))
    streams = [[each[i] if i < len(each) else None for each in references] for i in range(most)]
    made = np.array(statistics_of(bleu, predictions, streams), float)
    return np.concatenate([made[:, 2:], made[:, :2]], axis=1)  # sacrebleu has the lengths first


def statistics_of(
    metric: Any, predictions: Sequence[str], streams: Sequence[Sequence[str | None]]
) -> list[list[float]]:
    """The statistics of each text that sacrebleu adds up."""
    found: list[list[float]] = metric._extract_corpus_statistics(list(predictions), [list(each) for each in streams])
    return found


class _Words:
    """Words for rouge-score, whose own tokenizer knows a to z and digits alone."""

    def __init__(self, english: Any) -> None:
        self.english = english

    def tokenize(self, text: str) -> list[str]:
        words = words_apart(text.lower())
        return [token for word in words for token in (self.english.tokenize(word) if word.isascii() else [word])]


def _by_line(text: str) -> str:
    """A sentence a line, as rouge-score needs them."""
    return "\n".join(sentences_apart(text))


def check_libraries() -> None:
    """Check that the libraries are installed.

    Raises:
        WorkbenchError: a library is not installed.
    """
    for name in ("sacrebleu.metrics", "rouge_score.rouge_scorer"):
        _library(name)


def _library(module: str) -> Any:
    return library(module, "text", "scores of texts")

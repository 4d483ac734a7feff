"""Scores of answers that are stretches of a text: exact match and F1 over words (SQuAD; Rajpurkar et al., EMNLP 2016).

For a question with several right answers the best score counts; a question without any is answered by an empty answer
(SQuAD 2.0, Rajpurkar et al., ACL 2018). Case, punctuation, the English articles and white space are ignored. Characters
of scripts without spaces are words, and their punctuation is ignored too. CMRC's script does the same, but counts the
longest common stretch where this counts all common words.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from workbench.metrics.tallies import Tally
from workbench.text.sentences import SPACELESS

_PUNCTUATION = str.maketrans("", "", string.punctuation + "、。〈〉《》「」『』【】〔〕〖〗！（），．：；？～“”‘’…—·")
_SIGN = re.compile(f"[{SPACELESS}]")
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def words_of(answer: str) -> list[str]:
    """The words of an answer that are compared."""
    return _SIGN.sub(r" \g<0> ", _ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION))).split()


def word_f1(predicted: str, gold: str) -> float:
    """F1 of two answers as bags of words; where one has no word, whether the other has none either."""
    ours, right = words_of(predicted), words_of(gold)
    if not ours or not right:
        return float(ours == right)
    shared = (Counter(ours) & Counter(right)).total()
    return 2 * shared / (len(ours) + len(right))


def answer_scores(predicted: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """`exact_match` and `f1` (0..1) over questions; where some have no answer also `no_answer_accuracy`, of these.

    Args:
        predicted: an answer for each question, "" for none.
        answers: the right ones of each; none where there is none.

    Raises:
        ValueError: there are no questions.
    """
    if not answers:
        raise ValueError("there are no questions to score")
    return {name: tally.whole for name, tally in answer_tallies(predicted, answers).items()}


def answer_tallies(predicted: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, Tally]:
    """The tallies of the numbers of `answer_scores`, by question."""
    pairs = [(ours, right or [""]) for ours, right in zip(predicted, answers, strict=True)]
    exact = [max(words_of(ours) == words_of(one) for one in right) for ours, right in pairs]
    f1 = [max(word_f1(ours, one) for one in right) for ours, right in pairs]
    found = {"exact_match": Tally.share(exact), "f1": Tally.mean(f1)}
    silent = [not right for right in answers]
    return found | ({"no_answer_accuracy": Tally.share(exact, silent)} if any(silent) else {})

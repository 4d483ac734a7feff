"""Scores of captions against several references: BLEU and CIDEr-D, both by the rules of the COCO caption evaluation.

BLEU (Papineni et al., ACL 2002) of orders 1 to 4 over all captions together, by sacrebleu, without smoothing, with the
length of the reference that is closest. CIDEr-D (Vedantam et al., arXiv:1411.5726, section 8) of caption c with the
references S of its image:

    CIDEr-D(c, S) = mean over n = 1..4 of CIDEr-D_n,
    CIDEr-D_n = 10 / |S| * sum over s in S of exp(-(l(c) - l(s))^2 / 72) * cos_n(c, s),
    cos_n(c, s) = min(g_n(c), g_n(s)) . g_n(s) / (|g_n(c)| |g_n(s)|)

g_n are the counts of n-grams times log(images / images with a reference that has the n-gram), l the number of words.
The images are the scored ones, so the score depends on all of them, and is 0 if there is only one.

All numbers are times 100 (so CIDEr-D can exceed 100), as papers print them. Words are those of sacrebleu's 13a in lower
case, without punctuation. The published evaluation uses Stanford's PTB tokenizer, a program in Java, which differs in
contractions and the like.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from workbench.core.packages import library
from workbench.metrics.tallies import Tally
from workbench.metrics.texts import bleu_rows

ORDERS = (1, 2, 3, 4)
SIGMA = 6.0
Gram = tuple[str, ...]


def caption_scores(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """`bleu1` to `bleu4` and `cider`, each times 100.

    Args:
        references: one or more for each prediction.

    Raises:
        WorkbenchError: sacrebleu is not installed.
    """
    return {name: tally.whole for name, tally in caption_tallies(predictions, references).items()}


def caption_tallies(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Tally]:
    """The contribution of each caption to the numbers of `caption_scores`; CIDEr-D's frequencies cover all images."""
    made = [words_of(text) for text in predictions]
    wanted = [[words_of(text) for text in each] for each in references]
    rows = bleu_rows(
        _bleu(max(ORDERS)), [" ".join(words) for words in made], [[*map(" ".join, each)] for each in wanted]
    )
    most = len(ORDERS)
    found = {
        f"bleu{n}": Tally("bleu_unsmoothed", rows[:, [*range(n), *range(most, most + n), 2 * most, 2 * most + 1]])
        for n in ORDERS
    }
    return found | {"cider": Tally.mean([100 * score for score in cider_d(made, wanted)])}


def words_of(text: str) -> list[str]:
    """The words of a caption: split by 13a, in lower case, without tokens that have no letter or digit."""
    split = library("sacrebleu.tokenizers.tokenizer_13a", "text", "scores of captions").Tokenizer13a()
    return [word for word in split(text.lower()).split() if any(sign.isalnum() for sign in word)]


def bleu(made: Sequence[list[str]], wanted: Sequence[Sequence[list[str]]]) -> list[float]:
    """BLEU of each order, 0 to 100."""
    most = max(map(len, wanted))
    streams = [[" ".join(each[i]) if i < len(each) else None for each in wanted] for i in range(most)]
    texts = [" ".join(words) for words in made]
    return [float(_bleu(n).corpus_score(texts, streams).score) for n in ORDERS]


def _bleu(order: int) -> Any:
    metrics: Any = library("sacrebleu.metrics", "text", "scores of captions")
    return metrics.BLEU(max_ngram_order=order, tokenize="none", smooth_method="none", force=True)


def cider_d(made: Sequence[list[str]], wanted: Sequence[Sequence[list[str]]]) -> list[float]:
    """CIDEr-D of each caption, 0 to 10."""
    seen = Counter(gram for each in wanted for gram in {gram for words in each for gram in _counts(words)})
    images = math.log(len(wanted)) if wanted else 0.0

    def weighted(words: list[str]) -> dict[Gram, float]:
        return {gram: count * (images - math.log(max(1, seen[gram]))) for gram, count in _counts(words).items()}

    scores = []
    for words, each in zip(made, wanted, strict=True):
        own = weighted(words)
        found = [_likeness(own, weighted(other), len(words) - len(other)) for other in each]
        scores.append(10 * sum(found) / len(found))
    return scores


def _likeness(made: dict[Gram, float], other: dict[Gram, float], longer: int) -> float:
    """The mean over orders of the clipped cosine, with a penalty for another length."""
    total = 0.0
    for order in ORDERS:
        one, two = ({g: w for g, w in each.items() if len(g) == order} for each in (made, other))
        norms = math.hypot(*one.values()) * math.hypot(*two.values())
        if norms:
            total += sum(min(weight, two[gram]) * two[gram] for gram, weight in one.items() if gram in two) / norms
    return total / len(ORDERS) * math.exp(-(longer**2) / (2 * SIGMA**2))


def _counts(words: list[str]) -> Counter[Gram]:
    return Counter(tuple(words[i : i + n]) for n in ORDERS for i in range(len(words) - n + 1))

"""Scores of tagged words: accuracy, and precision, recall and F1 of the chunks that tags spell, as in seqeval.

A chunk is found where its first and last word and its name are right, as in the CoNLL evaluations (Tjong Kim Sang and
De Meulder, CoNLL 2003): all chunks of all texts count alike. `B-x` begins a chunk x, `I-x` continues with one, or
begins one after another name or `O`; with the tags of IOBES `E-x` ends one and `S-x` is one. Other schemes are read as
these (`workbench.metrics.tag_schemes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import eq
from typing import Any

import numpy as np

from workbench.core.packages import library
from workbench.metrics.tag_schemes import OUTSIDE
from workbench.metrics.tallies import Tally

Chunk = tuple[int, int, str]  # the words [begin, end), the name


def chunks(tags: Iterable[str]) -> list[Chunk]:
    """The chunks that the tags of a text's words spell, in their order.

    Raises:
        WorkbenchError: seqeval is not installed.
    """
    return [(begin, last + 1, name) for name, begin, last in _seqeval().get_entities(list(tags))]


def spelt(tags: Iterable[str], ends: bool) -> list[str]:
    """Tags of a text's words that spell the same chunks, in IOBES with `ends` of chunks, in IOB2 without."""
    tags = list(tags)
    made = [OUTSIDE] * len(tags)
    for begin, end, name in chunks(tags):
        made[begin:end] = [f"B-{name}", *[f"I-{name}"] * (end - begin - 1)]
        if ends:
            made[end - 1] = f"{'S' if end - begin == 1 else 'E'}-{name}"
    return made


def tag_scores(predicted: np.ndarray, gold: np.ndarray, words: Sequence[int], names: Sequence[str]) -> dict[str, float]:
    """`accuracy` over words; `precision`, `recall` and `f1` over chunks.

    Args:
        predicted, gold: tags [words of all texts], as indices into `names`.
        words: the number of words of each text.

    Raises:
        ValueError: there is no word.
        WorkbenchError: seqeval is not installed.
    """
    if not len(gold):
        raise ValueError("there are no words to score")
    ends = list(accumulate(words))
    guessed, right = (
        [[names[tag] for tag in tags[end - count : end].tolist()] for end, count in zip(ends, words, strict=True)]
        for tags in (predicted, gold)
    )
    precision, recall, f1, _ = _seqeval().precision_recall_fscore_support(
        right, guessed, average="micro", zero_division=0
    )
    return {
        "accuracy": float((predicted == gold).mean()),
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
    }


def tag_tallies(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, Tally]:
    """The tallies of the numbers of `tag_scores`, by text; the tags of its words by name."""
    hits = [sum(map(eq, ours, theirs)) for ours, theirs in zip(predicted, gold, strict=True)]
    found, wanted = ([set(chunks(tags)) for tags in texts] for texts in (predicted, gold))
    right = [len(ours & theirs) for ours, theirs in zip(found, wanted, strict=True)]
    counts = [list(map(len, texts)) for texts in (found, wanted)]
    return {
        "accuracy": Tally.of("share", hits, list(map(len, gold))),
        "precision": Tally.of("share", right, counts[0]),
        "recall": Tally.of("share", right, counts[1]),
        "f1": Tally.of("f1", right, *counts),
    }


def chunk_counts(
    predicted: np.ndarray, gold: np.ndarray, words: Sequence[int], names: Sequence[str]
) -> dict[str, tuple[int, int, int]]:
    """By name of chunks, the numbers of those found rightly, found, and gold; arguments as for `tag_scores`."""
    right, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for end, count in zip(accumulate(words), words, strict=True):
        ours, theirs = (
            set(chunks(names[tag] for tag in tags[end - count : end].tolist())) for tags in (predicted, gold)
        )
        for counter, among in ((right, ours & theirs), (found, ours), (wanted, theirs)):
            counter.update(name for _, _, name in among)
    return {name: (right[name], found[name], wanted[name]) for name in found | wanted}


def _seqeval() -> Any:
    return library("seqeval.metrics.sequence_labeling", "text", "chunks of tags")

"""Scores of tagged words: accuracy, and precision, recall and F1 of the chunks that their tags spell.

A chunk is found where its first and last word and its name are right, as in the CoNLL evaluations (Tjong Kim Sang and
De Meulder, CoNLL 2003): all chunks of all texts count alike. `B-x` begins a chunk x, `I-x` goes on with one, or begins
one after another name or `O`; with the tags of IOBES `E-x` ends one and `S-x` is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

OUTSIDE = "O"
WORD_TAG = re.compile(rf"{OUTSIDE}|[BIES]-.+")
"""How tags of single words look; any other name is that of a whole chunk."""

Chunk = tuple[int, int, str]  # the words [begin, end), the name


def chunks(tags: Iterable[str]) -> list[Chunk]:
    """The chunks that the tags of a text's words spell, in their order."""
    found: list[Chunk] = []
    begin, name, ended = -1, "", True
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, kind = tag.partition("-")
        if begin >= 0 and (ended or prefix in (OUTSIDE, "B", "S") or kind != name):
            found.append((begin, place, name))
            begin = -1
        if begin < 0 and prefix != OUTSIDE:
            begin, name = place, kind
        ended = prefix in ("E", "S")
    return found


def tag_scores(predicted: np.ndarray, gold: np.ndarray, words: Sequence[int], names: Sequence[str]) -> dict[str, float]:
    """`accuracy` over words; `precision`, `recall` and `f1` over chunks.

    Args:
        predicted, gold: tags [words of all texts], as places in `names`.
        words: how many words each text has.

    Raises:
        ValueError: there is no word.
    """
    if not len(gold):
        raise ValueError("there are no words to score")
    right = guessed = wanted = 0
    for end, count in zip(accumulate(words), words, strict=True):
        text = slice(end - count, end)
        of_text = [set(chunks(names[tag] for tag in tags[text].tolist())) for tags in (predicted, gold)]
        right += len(of_text[0] & of_text[1])
        guessed += len(of_text[0])
        wanted += len(of_text[1])
    return {
        "accuracy": float((predicted == gold).mean()),
        "precision": right / guessed if guessed else 0.0,
        "recall": right / wanted if wanted else 0.0,
        "f1": 2 * right / (guessed + wanted) if right else 0.0,
    }

"""Average normalised Levenshtein similarity of answers that are read in images (Biten et al., ICCV 2019, equation 1).

    s(answer, prediction) = 1 - d / max(|answer|, |prediction|)     d: insertions, deletions, substitutions of letters
    score                 = max over a question's answers of s, and 0 where that is below .5

So errors of reading cost a little, and other words everything. As in the challenges' script (ST-VQA, DocVQA), capitals
and blanks at the ends or doubled are ignored, and exactly .5 counts (the paper's own inequality makes it 0).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

THRESHOLD = 0.5


def similarity(prediction: str, answers: Sequence[str]) -> float:
    """The score of a prediction, in 0..1."""
    return float(best_similarities([prediction], answers)[0])


def best_similarities(predictions: Sequence[str], answers: Sequence[str]) -> np.ndarray:
    """The score of each of several predictions to one question, [predictions] in 0..1."""
    said = [plain(prediction) for prediction in predictions]
    lengths = np.array([len(text) for text in said])
    best = np.zeros(len(said))
    for answer in map(plain, answers):
        longest = np.maximum(lengths, len(answer))
        best = np.maximum(best, 1 - distances(answer, said) / np.maximum(longest, 1))
    return np.where(best < THRESHOLD, 0.0, best)


def distances(text: str, others: Sequence[str]) -> np.ndarray:
    """Levenshtein's distances [others] of a text from others, all rows of the table at once."""
    width = max((len(other) for other in others), default=0)
    letters = np.array(others, f"U{max(width, 1)}").view(np.uint32).reshape(len(others), max(width, 1))[:, :width]
    place = np.arange(width + 1)
    row = np.broadcast_to(place, (len(others), width + 1))
    for number, letter in enumerate(text, 1):
        best = np.full(row.shape, number)
        best[:, 1:] = np.minimum(row[:, 1:] + 1, row[:, :-1] + (letters != ord(letter)))
        row = np.minimum.accumulate(best - place, 1) + place  # insertions, from left to right
    found: np.ndarray = row[np.arange(len(others)), [len(other) for other in others]]
    return found


def plain(text: str) -> str:
    """The compared form of answers: lower case, with single blanks between words."""
    return " ".join(text.lower().split())

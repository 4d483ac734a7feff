"""The masking strategy `kg.sentiment_words`: another share of the words with a polarity."""

from __future__ import annotations

import numpy as np

from kg.sequences.maskings import SentimentWordsMasking
from tests.contracts.cases import MaskingCase
from tests.contracts.material import selected
from tests.kg.sentiment_files import tagged_samples, tagged_sequences
from workbench.core.keyed import generator

CASE = MaskingCase()


def test_words_with_a_polarity_are_hidden_more_often_and_whole() -> None:
    sequences = tagged_sequences(tagged_samples(200))
    masking, hidden, free = SentimentWordsMasking(0.3), np.zeros(2), np.zeros(2)
    for number, sequence in enumerate(sequences):
        text = sequence.streams["text"]
        felt = text["polarity_ids"] != 2
        ordinary = ~text["special"]
        groups = selected(masking, sequence, "text", 0.15, generator(number))
        for rows in groups:
            (word,) = set(text["word_ids"][rows].tolist())
            assert (text["word_ids"] == word).sum() == len(rows)
        rows = np.concatenate(groups)
        hidden += [felt[rows].sum(), (~felt[rows]).sum()]
        free += [(felt & ordinary).sum(), (~felt & ordinary).sum()]
    shares = hidden / free
    assert np.all(np.abs(shares - [0.3, 0.15]) < 4 * np.sqrt(np.array([0.21, 0.1275]) / free) + 0.02)

"""Where the sentences of a stream of tokens end, by the tokens alone: for noises that move or hide whole sentences."""

from __future__ import annotations

import numpy as np

from workbench.sequences.sequence import Fields
from workbench.text.tokenizer import Tokenizer

SPACED, UNSPACED = frozenset(".!?…"), frozenset("。！？")
_LONGEST = 4  # characters of a mark's token: a prefix, and as many bytes as a mark has


class SentenceEnds:
    """Sentences end at marks: full stops, question and exclamation marks before white space, so that "3.5" is none;
    those of Chinese and Japanese need no space."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        short = [i for token, i in tokenizer.vocabulary.items() if len(token) <= _LONGEST]
        marks = {i: tokenizer.decode([i]).strip().lstrip("#") for i in short}
        self.spaced = np.array(sorted(i for i, mark in marks.items() if mark in SPACED), np.int64)
        self.unspaced = np.array(sorted(i for i, mark in marks.items() if mark in UNSPACED), np.int64)

    def split(self, fields: Fields, rows: np.ndarray) -> list[np.ndarray]:
        """Neighbouring rows of a stream, sentence by sentence; none is empty."""
        if not len(rows):
            return []
        ids, after = fields["input_ids"][rows[:-1]], rows[1:]
        apart = fields["char_start"][after] > fields["char_end"][after - 1]
        return np.split(rows, np.flatnonzero(np.isin(ids, self.unspaced) | (np.isin(ids, self.spaced) & apart)) + 1)

"""Sentence permutation (BART, arXiv:1910.13461, section 2.2): the sentences of a text in a random order.

As in the paper, sentences end at full stops, here also at marks of questions and exclamations: at tokens, where
white space or the end follows, so that "3.5" is none; marks of Chinese and Japanese need no space. A mark that an
earlier noise has hidden ends none, so permute before infilling.
"""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import SomeShare
from workbench.sequences.noises._stretches import stretches_of
from workbench.sequences.protocols import Noise
from workbench.sequences.rows import take
from workbench.sequences.sentences import SentenceEnds
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer


class Permute(Noise):
    """Sentence permutation (BART, arXiv:1910.13461, section 2.2). Sentences change places.

    Args:
        rate: share of the sentences of each text that change places among each other.
    """

    def __init__(self, tokenizer: Tokenizer, rate: SomeShare) -> None:
        self.rate, self.sentences = rate, SentenceEnds(tokenizer)

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        fields, rows = sequence.fields(stream), np.arange(sequence.length(stream))
        for start, end in stretches_of(fields):
            sentences = self.sentences.split(fields, rows[start:end].copy())
            moved = rng.permutation(len(sentences))[: round(self.rate * len(sentences))]
            order = np.arange(len(sentences))
            order[np.sort(moved)] = moved
            rows[start:end] = np.concatenate([sentences[i] for i in order])
        take(sequence, rows, stream)

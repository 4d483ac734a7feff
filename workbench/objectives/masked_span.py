"""Masked sequence to sequence (MASS, Song et al., ICML 2019, arXiv:1905.02450, sections 3.2 and 4.1).

A stretch of `rate` of a text is masked; a decoder predicts it, and reads only its own output, at the positions of the
stretch:

    text     the old _ _ _ and bridges [SEP]
    target           _ river flows           at the positions 2, 3, 4; predicts: river flows past

The stretch begins anywhere, as in the paper (in the published code a fifth begin at the beginning, and a fifth end at
the end). The encoder's input in place of its tokens is as for `mlm` (`replace`).
"""

from __future__ import annotations

import numpy as np

from workbench.core.keyed import Numbers
from workbench.core.options.bounds import SomeShare, Word
from workbench.objectives._decoder import DecoderObjective, DecoderTarget
from workbench.sequences.replacement import USUAL, ReplacementOptions, TokenReplacement
from workbench.sequences.selection import RowGroups, selectable
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer


class MaskedSpan(DecoderObjective):
    """Masked sequence-to-sequence pretraining (MASS, Song et al., arXiv:1905.02450, section 3). The encoder reads a
    text with a masked span, and the decoder predicts the span.

    Args:
        rate: share of the text's tokens in the stretch.
        replace: {mask, random, per, similar}: the encoder's input in place of these, as for `mlm`.
        stream: the encoder's stream.
        target: the decoder's stream.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: SomeShare = 0.5,
        replace: ReplacementOptions = USUAL,
        stream: Word = "text",
        target: Word = "target",
    ) -> None:
        super().__init__(tokenizer, stream, target, start="mask")
        self.rate = rate
        self.replace = TokenReplacement(tokenizer, replace)

    def noise(self, sequence: Sequence, rng: np.random.Generator) -> DecoderTarget:
        """Mask a stretch; the target of a text without free tokens is empty."""
        text = sequence.fields(self.stream)
        rows = stretch(selectable(text), self.rate, rng)
        if not len(rows):
            return DecoderTarget(rows)
        written = DecoderTarget(text["input_ids"][rows], int(text["position_ids"][rows[0]]))
        self.replace([sequence], self.stream, RowGroups(rows, [len(rows)], [0]), Numbers.of(rng))
        return written


def stretch(free: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Neighbouring free rows, `rate` of all (or as many as are neighbours), each such stretch equally likely."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], free, [False]])))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    if not len(starts):
        return np.zeros(0, np.int64)
    size = min(max(round(rate * int(free.sum())), 1), int(lengths.max()))
    begins = np.concatenate(
        [np.arange(first, first + length - size + 1) for first, length in zip(starts, lengths, strict=True)]
    )
    return np.arange(size) + int(begins[rng.integers(len(begins))])

"""Turns of a dialogue: [CLS] q [SEP] r [SEP] q [SEP], with roles instead of segments.

ERNIE 1.0's dialogue language model (arXiv:1904.09223, section 4.2) has three turns: QQR, QRQ or QRR.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from workbench.core.errors import BadValueError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count
from workbench.sequences.builder import TRUNCATED, Builder, sequence_of
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.text_layout import VisibilityAlone
from workbench.text.tokenizer import Tokenizer

Turns = Annotated[int, Ge(2), Le(100)]


class DialogueBuilder(Builder):
    """Consecutive turns of a dialogue: [CLS] q [SEP] r [SEP] q [SEP], with roles instead of segments (ERNIE,
    arXiv:1904.09223). A long dialogue becomes several sequences with about equally many turns.

    The first speaker of a sequence has the role (`token_type_ids`) 0, all others 1; where `speakers` are not stored,
    two speak in turn. Turns that are too long together are cut at their ends, the longest first; the tokens lost are
    counted.

    Args:
        turns: the most turns of a sequence.
        visibility: the tokens that each token sees: all (`bidirectional`), or those up to itself (`causal`).
    """

    reads = ("turns",)

    def __init__(
        self, tokenizer: Tokenizer, max_length: Count, turns: Turns = 3, visibility: VisibilityAlone = "bidirectional"
    ) -> None:
        super().__init__(tokenizer, max_length, segments=turns, visibility=visibility)
        self.turns = turns

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        return super().arrange([piece for sample in samples for piece in self._pieces(sample)], draws)

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        pieces = [piece for sample in samples for piece in self._pieces(sample)]
        encoded = iter(self.tokenizer.encode_batch([turn for piece in pieces for turn in piece["turns"]]))
        sequences = []
        for piece in pieces:
            turns = [next(encoded) for _ in piece["turns"]]
            lengths = np.array([len(turn) for turn in turns])
            kept = _fitted(lengths, self.capacity)
            if (lengths > kept).any():
                self.dropped[TRUNCATED] += int((lengths - kept).sum())
            parts = [turn.part(0, length) for turn, length in zip(turns, kept.tolist(), strict=True)]
            roles = [int(speaker != piece["speakers"][0]) for speaker in piece["speakers"]]
            stream, _ = self.frame.lay(parts, roles)
            sequences.append(sequence_of(piece, {"text": stream}, 0, []))
        return sequences

    def _pieces(self, sample: Sample) -> list[Sample]:
        """The sample in pieces of at most `turns` turns, each with as many speakers; itself where it is one."""
        turns = sample.get("turns")
        if not turns:
            raise missing(sample, "turns")
        speakers = sample.get("speakers") or [str(number % 2) for number in range(len(turns))]
        if len(speakers) != len(turns):
            raise BadValueError(
                f"sample {sample.get('key', '?')!r} of corpus {sample.get('corpus', '?')!r}",
                f"it has {len(turns)} turns and {len(speakers)} speakers; store one for each turn, or none at all",
                sample.get("draw"),
                "turns without speakers",
            )
        count = -(-len(turns) // self.turns)
        if count == 1:
            return [{**sample, "speakers": speakers}]
        bounds = np.linspace(0, len(turns), count + 1).round().astype(int).tolist()
        draw = tuple(sample.get("draw", ()))
        return [
            {**sample, "draw": (*draw, i), "turns": turns[begin:end], "speakers": speakers[begin:end]}
            for i, (begin, end) in enumerate(pairwise(bounds))
        ]


def _fitted(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Lengths [turns] of which none is above the greatest bound that lets all of them fit."""
    low, high = 0, max(int(lengths.max(initial=0)), capacity)
    while low < high:
        bound = (low + high + 1) // 2
        low, high = (bound, high) if np.minimum(lengths, bound).sum() <= capacity else (low, bound - 1)
    return np.minimum(lengths, low)

"""Copies of a text as further streams, which a network reads in other ways (BLIP, arXiv:2201.12086)."""

from __future__ import annotations

import numpy as np

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Role, Word
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Rows, Sequence
from workbench.text.tokenizer import Tokenizer


class TextCopyTransform(Transform):
    """Copy of a text as a stream of its own, which a network reads in another way (the three texts of BLIP,
    arXiv:2201.12086, section 3.1). Its rows belong to the text, so that a text taken by itself keeps its copies. A
    stream of that name that is there already stays as it is, such as the `target` of a builder.

    Args:
        stream: the name of the copy; its embedding is `token`.
        of: the text.
        begin: role of the token in the place of the first one; null: it stays.
        causal: whether each token of the copy sees those up to itself; otherwise as in the text.
    """

    def __init__(
        self, tokenizer: Tokenizer, stream: Word, of: Word = "text", begin: Role | None = None, causal: bool = False
    ) -> None:
        self.begin = None if begin is None else tokenizer.id(begin)
        self.stream, self.of, self.causal = stream, of, causal

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            length = sequence.length(self.of)
            if not length or self.stream in sequence.streams:
                continue
            fields = {name: values.copy() for name, values in sequence.streams[self.of].items()}
            if self.begin is not None:
                fields["input_ids"][0] = self.begin
            if self.causal:
                fields["rank"] = np.arange(1, length + 1)
            fields["of"] = Rows(self.of, np.zeros(length, np.int64), bound=True)
            sequence.streams[self.stream] = fields
        return sequences

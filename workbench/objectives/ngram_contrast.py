"""A sentence without an n-gram finds the n-gram (InfoWord, Kong et al., ICLR 2020, arXiv:1910.08350, section 4).

    L = - sum over sentences x of log [ exp(g(x without x_i..x_j) . g(x_i..x_j)) / sum over n-grams of the step ... ]

One encoder g reads both; its vector is that of the first row. The n-gram is masked in the sentence and read by itself.
It begins anywhere; its length is drawn from a normal distribution. This is deep InfoMax with InfoNCE. The paper also
has masked language modelling, which is `mlm` behind this objective.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, NotNegative, Number, Word
from workbench.objectives.contrast import PASSAGE, QUERY, Contrast, Temperature
from workbench.pretraining.objective import BatchTargets
from workbench.sequences.rows import recount, take
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

MeanLength = Annotated[Number, Ge(1), Le(2**16)]


class NgramContrast(Contrast):
    """Contrast of a sentence without an n-gram and the n-gram by itself, over the n-grams of the step (InfoWord, Kong
    et al., arXiv:1910.08350, section 4). The builder `text_pair` reads each text twice (`passages: twice`).

    Args:
        mean, deviation: of the normal distribution of the n-gram's length in tokens.
        longest: the greatest length.
        temperature: divides the products of vectors.
        stream: the stream of the sentence and of the n-gram.

    Raises:
        WorkbenchError: the sequences of a sample are not twice the same text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        mean: MeanLength = 5.0,
        deviation: NotNegative = 1.0,
        longest: Count = 10,
        temperature: Temperature = 1.0,
        stream: Word = "text",
    ) -> None:
        super().__init__(stream, stream, cosine=False, temperature=temperature, learned=False, directions="forward")
        self.mask, self.stream = tokenizer.id("mask"), stream
        self.mean, self.deviation, self.longest = mean, deviation, longest

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sample in self._samples(sequences):
            sentence, ngram = sample[QUERY][0], sample[PASSAGE][0]
            text = sentence.fields(self.stream)
            if not np.array_equal(text["input_ids"], ngram.fields(self.stream)["input_ids"]):
                raise WorkbenchError(
                    f"objective {self.name!r}: the two sequences of sample {sentence.key!r} differ; give the builder "
                    "text_pair `passages: twice`, and this objective the place before those that mask"
                )
            rows = self._rows(np.flatnonzero(selectable(text)), draws.of(sentence.draw))
            text |= {name: text[name].copy() for name in ("input_ids", "taken")}  # a text read twice is one in memory
            text["input_ids"][rows], text["taken"][rows] = self.mask, True
            fields = ngram.fields(self.stream)
            fields["taken"] = np.ones_like(fields["taken"])
            kept = fields["special"].copy()
            kept[rows] = True
            take(ngram, np.flatnonzero(kept), self.stream)
            recount(ngram, self.stream)
        return super().corrupt(sequences, draws)

    def _rows(self, free: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The rows of the n-gram, of all free ones; never all of several."""
        wanted = round(rng.normal(self.mean, self.deviation))
        size = min(max(wanted, 1), self.longest, max(len(free) - 1, 1))
        begin = int(rng.integers(max(len(free) - size, 0) + 1))
        return free[begin : begin + size]

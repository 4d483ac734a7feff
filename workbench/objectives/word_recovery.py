"""Cross-lingual word recovery (Unicoder, Huang et al., EMNLP 2019, arXiv:1909.00964, section 3.2).

    L = - sum over tokens s_i of a sentence of log p(s_i | its words as attention over the words of its translation)

The layer `translated_words` makes the input of the sentence from its translation, which is read by no other layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.models.layers.translated_words import TranslatedWordsLayer
from workbench.objectives._token_head import BERT, BertHeadOptions, TokenHead
from workbench.pretraining.objective import BatchTargets, Head, Objective
from workbench.sequences.rows import rows_of, take
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Rows, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class WordRecovery(Objective):
    """Cross-lingual word recovery (Unicoder, Huang et al., arXiv:1909.00964, section 3.2). The words of the first
    sentence of a pair (`translation_pair`) are recovered from those of the second.

    Args:
        stream: the stream of the pair, which keeps the first sentence.
        to: the stream that gets the second.
        head: {tied, bias, transform} of the head, as for `mlm`.

    Raises:
        WorkbenchError: the network has no layer `translated_words` between the streams.
    """

    predicts = "tokens"
    makes = ("to",)

    def __init__(self, stream: Word = "text", to: Word = "translation", head: BertHeadOptions = BERT) -> None:
        self.stream, self.to, self.head_options = stream, to, head

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            text = sequence.fields(self.stream)
            second = text["token_type_ids"] > 0
            sequence.streams[self.to] = rows_of(text, np.flatnonzero(second))
            sequence.streams[self.to]["taken"][:] = True
            take(sequence, np.flatnonzero(~second), self.stream)
            text = sequence.fields(self.stream)
            rows = np.flatnonzero(selectable(text))
            text["taken"][rows] = True
            labels = text["input_ids"][rows].copy()
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "labels": labels}
        return {}

    def head(self, network: Network) -> Head:
        ways = [(each.stream, each.source) for each in network.layers if isinstance(each, TranslatedWordsLayer)]
        if (self.stream, self.to) not in ways:
            raise WorkbenchError(
                f"word_recovery would predict words that the network reads: begin its layers with {{layer: "
                f"translated_words, stream: {self.stream}, to: {self.to}}}"
            )
        return TokenHead(network, self.stream, self.head_options)

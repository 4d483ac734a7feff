"""Masked entity prediction (LUKE; Yamada et al., EMNLP 2020, arXiv 2010.01057, section 3.3).

Some entity tokens become the mask. With h the state of one of them, B the table of the entities and t(h) =
norm(gelu(W h + c)), of the table's width,

    L = - sum over masked entities of log softmax(B t(h) + b)[entity]
"""

from __future__ import annotations

import numpy as np

from kg.sequences.entity_vocabulary import MASK
from workbench.core.keyed import Draws
from workbench.core.options.bounds import SomeShare, Word
from workbench.models.network import Network
from workbench.objectives._token_head import BERT, BertHeadOptions, TokenHead
from workbench.pretraining.objective import BatchTargets, Head, Objective
from workbench.sequences.selection import Selection
from workbench.sequences.sequence import Rows, Sequence


class Mep(Objective):
    """Masked entity prediction (LUKE, Yamada et al., arXiv:2010.01057, section 3.3): masked entities are predicted
    among the entity vocabulary.

    Args:
        rate: share of the entity tokens that are masked, all of them by the mask (the released code).
        stream: the stream of the entities (`kg.entity_tokens`).
        head: {tied, bias, transform} of the head, where a released model has another than BERT's.
    """

    def __init__(self, rate: SomeShare = 0.15, stream: Word = "entity", head: BertHeadOptions = BERT) -> None:
        self.rate, self.stream, self.head_options = rate, stream, head

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the targets `rows` and `labels` of every sequence that has the stream."""
        there = [sequence for sequence in sequences if self.stream in sequence.streams]
        selection = Selection(there, self.stream, self.rate, draws.numbers([sequence.draw for sequence in there]))
        selection.take_tokens()
        for sequence, groups in zip(there, selection.groups.by_sequence(selection.starts), strict=True):
            entities = sequence.streams[self.stream]
            rows = np.sort(np.concatenate([*groups, np.zeros(0, np.int64)]))
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "labels": entities["entity_ids"][rows]}
            entities["entity_ids"][rows] = MASK
            entities["taken"][rows] = True
        return {}

    def head(self, network: Network) -> Head:
        """
        Raises:
            WorkbenchError: the network has no such stream with a table of entities.
        """
        return MepHead(network, self.stream, self.head_options)


class MepHead(TokenHead):
    """BERT's prediction head over the table of the entities, whose rows are no tokens of the vocabulary."""

    by_token = ()

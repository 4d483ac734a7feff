"""The part of speech and the polarity of hidden words (SentiLR, arXiv:1911.02493: label-aware masked language model).

Where another objective has hidden a word, its part of speech and its polarity are hidden at the input too and
predicted:

    L = - sum over the tokens of hidden words  log P(part of speech) + log P(polarity)

each by a head on the embedding's table of them. Neutral words of no known part of speech have no label. Where a word
was left to be seen, so is what is known of it (as in the released code of thu-coai/SentiLARE).
"""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F

from kg.lexicons.sentiment_lexicon import NEUTRAL, OTHER
from kg.objectives._field_head import FieldHead
from kg.objectives._hidden import hidden_tokens
from kg.sequences.transforms.sentiment import PART, POLARITY
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Rows, Sequence


class WordKnowledge(Objective):
    """Label-aware masked language modelling (SentiLR, arXiv:1911.02493): the part of speech and the polarity of the
    words that another objective masks. The transform kg.sentiment writes them.

    Args:
        of: the name of the objective that hides words.
        stream: the stream of the tokens.
    """

    def __init__(self, of: Word = "mlm", stream: Word = "text") -> None:
        self.stream = stream
        self.after = (of,)

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes `rows`, `labels` (the parts of speech) and `polarities` of the hidden words that have them."""
        for sequence in sequences:
            rows, tokens = hidden_tokens(sequence, self.after[0])
            text = sequence.fields(self.stream)
            parts, polarities = text[PART][rows], text[POLARITY][rows]
            gone = rows[text["input_ids"][rows] != tokens]
            text[PART][gone], text[POLARITY][gone] = OTHER, NEUTRAL
            known = (parts != OTHER) | (polarities != NEUTRAL)
            sequence.targets[self.name] = {
                "rows": Rows(self.stream, rows[known]),
                "labels": parts[known].astype(np.int64),
                "polarities": polarities[known].astype(np.int64),
            }
        return {}

    def head(self, network: Network) -> Head:
        return WordKnowledgeHead(network, self.stream)


class WordKnowledgeHead(Head):
    """A head for parts of speech, and one for polarities."""

    def __init__(self, network: Network, stream: str = "text") -> None:
        super().__init__()
        self.stream = stream
        self.parts = FieldHead(network, stream, PART)
        self.polarities = FieldHead(network, stream, POLARITY)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metrics `part_accuracy` and `polarity_accuracy`."""
        targets = inputs.targets
        rows = inputs.states[self.stream][targets["rows"]]
        parts = self.parts(inputs.network, rows).float()
        polarities = self.polarities(inputs.network, rows).float()
        loss = F.cross_entropy(parts, targets["labels"], reduction="sum")
        loss = loss + F.cross_entropy(polarities, targets["polarities"], reduction="sum")
        right = (parts.argmax(-1) == targets["labels"]).sum(), (polarities.argmax(-1) == targets["polarities"]).sum()
        return LossOutput(loss, {"part_accuracy": (right[0], len(rows)), "polarity_accuracy": (right[1], len(rows))})

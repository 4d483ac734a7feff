"""The label of a text at the input, or to be predicted (SentiLR, arXiv:1911.02493: early fusion and late supervision).

A text with a label is read in one of two ways. Early: the embedding of its label is added to all tokens but special
ones, and other objectives predict what is hidden with its help. Late, in a share of the cases: the label is unknown at
the input and is predicted from the first token, by a head on the embedding's table of labels.

    L = - sum over the late texts  log P(label)
"""

from __future__ import annotations

import numpy as np

from kg.objectives._field_head import FieldHead
from kg.sequences.transforms.sentiment import LABEL
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Name, Share, Word
from workbench.models.network import Network
from workbench.objectives._token_head import TokenLoss
from workbench.objectives.classify import OTHER_SET
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Sequence


class LabelFusion(Objective):
    """Label-aware pretraining (SentiLR, arXiv:1911.02493: early fusion and late supervision). The label of a text is
    written into its field `label_ids`, or is predicted. A text without a label is unchanged.

    Args:
        classes: names of the labels; a label's number is its place.
        late: share of the texts whose label is predicted.
        label: which of the sample's labels.
        stream: the stream of the tokens.

    Raises:
        WorkbenchError: fewer than two classes, one twice, or a label that is none of them.
    """

    reads = ("labels",)

    def __init__(self, classes: list[Name], late: Share = 0.2, label: Name = "label", stream: Word = "text") -> None:
        if len(classes) < 2 or len(set(classes)) != len(classes):
            raise WorkbenchError(
                f"objective label_fusion: classes has {len(classes)} entries, {len(set(classes))} of them different; "
                "give two or more different ones"
            )
        self.classes = {name: number for number, name in enumerate(classes)}
        self.late, self.label, self.stream = late, label, stream

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the target `labels` [1] of every sequence, and the field of those that are read early."""
        for sequence in sequences:
            target = -100
            late = draws.of(sequence.draw).random() < self.late
            if self.label in sequence.labels:
                number = self._number(sequence)
                text = sequence.fields(self.stream)
                if late:
                    target = number
                else:
                    text[LABEL][~text["special"]] = number
            sequence.targets[self.name] = {"labels": np.array([target], np.int64)}
        return {}

    def _number(self, sequence: Sequence) -> int:
        name = str(sequence.labels[self.label])
        if name not in self.classes:
            where = f"label {self.label!r} of sequence {sequence.key!r}"
            raise unknown("class", name, self.classes, where, advice=OTHER_SET)
        return self.classes[name]

    def head(self, network: Network) -> Head:
        return LabelFusionHead(network, self.stream)


class LabelFusionHead(Head):
    """Scores of the labels, and of the unknown one, from the state of the first token."""

    def __init__(self, network: Network, stream: str = "text") -> None:
        super().__init__()
        self.stream = stream
        self.scores = FieldHead(network, stream, LABEL)
        self.loss = TokenLoss()

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metric `accuracy`."""
        first = inputs.network.first_rows(inputs.states, inputs.batch, self.stream)
        return self.loss(self.scores(inputs.network, first), inputs.targets["labels"])

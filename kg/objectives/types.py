"""Entity typing as an objective: which types does the marked mention have?

Zhang et al., "ERNIE: Enhanced Language Representation with Informative Entities", ACL 2019 (arXiv 1905.07129),
section 4.2, as released. With p the pooled output of the text stream, or the state of the marker before the mention
(K-Adapter, arXiv 2002.01808, section 4.1), or of the entity token there (LUKE, arXiv 2010.01057, section 4.1),

    z = W dropout(p)                                                        (no bias)
    L = mean over all (mention, type) cells of the binary cross-entropy of sigmoid(z) against the gold types

The loss here is the sum, and each cell counts as one label, so that the trainer's division yields that mean.

With groups of types, as of ultra-fine entity typing (Choi et al., ACL 2018, arXiv 1807.04905, section 4), where
thousands of types would hide that one is missed:

    L = mean over mentions of the sum, over the groups that a mention has a type of, of the mean over the group's cells
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import MinLen
from torch import Tensor, nn

from kg.metrics.typing_scores import predicted_types, typing_scores
from kg.objectives._reading import ROWS, Reading, by_mention, read, rows_to_read
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Dropout, Size, Word
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sequence


class Types(Objective):
    """Entity typing: multi-label classification of the mentions that the builder `mention` marked.

    Args:
        num_types: how many types the builder's inventory has.
        read: the network's pooler (the released code), the first row itself, the marker before the mention, or its
            entity token (`stream: entity`).
        dropout: of what is read.
        stream: of which.
        groups: how many types each group has, in the order of the types; null: the mean over all cells.
    """

    measured = ("logits", "gold")

    def __init__(
        self,
        num_types: Size,
        read: Reading = "pooled",
        dropout: Dropout = 0.1,
        stream: Word = "text",
        groups: Annotated[list[Count], MinLen(1)] | None = None,
    ) -> None:
        if groups is not None and sum(groups) != num_types:
            raise WorkbenchError(
                f"types: groups = {groups}, which are {sum(groups)} types in all; num_types = {num_types}: give the "
                "size of every group, so that they come to that"
            )
        self.stream = stream
        self.num_types = num_types
        self.groups = groups
        self.read = read
        self.dropout = dropout

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the target `labels` [1, types] float32 of every sequence, and the row of the mention where it is read.

        Raises:
            WorkbenchError: a sequence has no labels, or those of another inventory.
        """
        for sequence in sequences:
            labels = sequence.meta.get("labels")
            found = "none" if labels is None else str(len(labels))
            if found != str(self.num_types):
                raise WorkbenchError(
                    f"types: sequence {sequence.key!r} has labels of {found} types, the objective says num_types = "
                    f"{self.num_types}; use the builder `mention` with an inventory `types` of that length"
                )
            sequence.targets[self.name] = {"labels": np.asarray(labels, np.float32)[None]}
            if by_mention(self.read):
                sequence.targets[self.name][ROWS] = rows_to_read(self.read, sequence, ("mention",), self.stream)
        return {}

    def count(self, batch: Batch) -> float:
        """Cells: sequences x types; with groups sequences."""
        labels = batch.targets.get(self.name, {}).get("labels")
        return 0.0 if labels is None else float(labels.numel() if self.groups is None else len(labels))

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """The scores of entity typing with the types of the inventory: logit > 0, Open Entity's macro average."""
        return typing_scores(predicted_types(made["logits"].numpy()), made["gold"].numpy()).numbers()

    def head(self, network: Network) -> Head:
        size = network.pooled_size(self.stream) if self.read == "pooled" else network.sizes[self.stream]
        return TypesHead(size, self.num_types, self.read, self.dropout, self.stream, self.groups)


class TypesHead(Head):
    """One linear layer without bias."""

    def __init__(
        self,
        hidden_size: int,
        num_types: int,
        reading: Reading = "pooled",
        dropout: float = 0.1,
        stream: str = "text",
        groups: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.stream = stream
        self.groups = groups
        self.typing = nn.Linear(hidden_size, num_types, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.reading: Reading = reading

    def logits(self, inputs: HeadInputs) -> Tensor:
        """[sequences, types]."""
        logits: Tensor = self.typing(self.dropout(read(self.reading, inputs, self.stream)))
        return logits

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Sum over cells, with groups over mentions; metrics `precision` and `recall` over cells by the rule logit > 0.

        Made: `logits` and `gold` [sequences, types].
        """
        logits = self.logits(inputs).float()
        labels = inputs.targets["labels"]
        cells = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        loss = cells.sum() if self.groups is None else _by_group(cells, labels, self.groups)
        predicted, gold = logits > 0, labels > 0
        both = (predicted & gold).sum()
        return LossOutput(
            loss,
            {"precision": (both, predicted.sum()), "recall": (both, gold.sum())},
            {"logits": logits, "gold": gold},
        )


def _by_group(cells: Tensor, labels: Tensor, groups: list[int]) -> Tensor:
    """Of losses and labels [mentions, types]: the sum of each group's mean where the mention has a type of it."""
    parts = zip(cells.split(groups, 1), labels.split(groups, 1), strict=True)
    return torch.stack([(loss.mean(1) * (gold > 0).any(1)).sum() for loss, gold in parts]).sum()

"""The head of knowledge embedding: a relation leads from its head to its tail (TransE, Bordes et al., NeurIPS 2013)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head, LossOutput
from workbench.sequences.batch import Targets

NOBODY = -1
TEXTS = ("head", "tail", "head_of_relation", "tail_of_relation", "relation")
FALSE = ("false_heads", "false_tails")
"""Targets: places among the texts that were encoded, `NOBODY` for no false triple."""


class TranslationHead(Head):
    """Scores of triples by what was read of them.

    Args:
        size: of the vectors.
        relations: how many relations have a vector; None where they are read.
    """

    def __init__(
        self, size: int, relations: int | None, margin: float = 4.0, norm: int = 2, stream: str = "text"
    ) -> None:
        super().__init__()
        self.margin, self.norm, self.stream = margin, norm, stream
        self.relations = None if relations is None else nn.Embedding(relations, size)
        if self.relations is not None:
            bound = (margin + 2) / size  # as released
            nn.init.uniform_(self.relations.weight, -bound, bound)

    def scores(self, texts: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """Of the true triples [triples], and of the false ones, those with another head first [triples, 2 x number].

        Args:
            texts: vectors [texts, size].
            targets: as `kg.objectives.knowledge_embedding.KnowledgeEmbedding.corrupt` writes them.
        """
        head, tail, head_of, tail_of = (texts[targets[name]] for name in TEXTS[:4])
        relation = texts[targets["relation"]] if self.relations is None else self.relations(targets["relation"])
        false_heads, false_tails = (texts[targets[name].clamp_min(0)] for name in FALSE)
        true = (self._score(head_of, relation, tail) + self._score(head, relation, tail_of)) / 2
        head_of, relation, tail_of = head_of[:, None], relation[:, None], tail_of[:, None]
        false = self._score(false_heads, relation, tail_of), self._score(head_of, relation, false_tails)
        return true, torch.cat(false, 1)

    def loss(self, true: Tensor, false: Tensor, targets: Targets) -> LossOutput:
        """The sum over triples of the `scores`.

        Metric `accuracy`: the share of false triples whose score is below that of the true one.
        """
        drawn = torch.cat([targets[name] for name in FALSE], 1) != NOBODY
        of_false = (F.logsigmoid(-false) * drawn).sum(1) / drawn.sum(1).clamp_min(1)
        below = ((false < true[:, None]) & drawn).sum()
        return LossOutput(-(F.logsigmoid(true) + of_false).sum() / 2, {"accuracy": (below, drawn.sum())})

    def forward(self, inputs: HeadInputs) -> LossOutput:
        return self.loss(*self.scores(self._texts(inputs).float(), inputs.targets), inputs.targets)

    def _score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return self.margin - torch.linalg.vector_norm(head + relation - tail, ord=self.norm, dim=-1)

    def _texts(self, inputs: HeadInputs) -> Tensor:
        """The vector of every different text [texts, size]."""
        encoded = inputs.known("encoded").tolist()
        if len(encoded) == inputs.batch.size:
            return inputs.network.summary_rows(inputs.states, inputs.batch, self.stream)
        read = inputs.run(inputs.batch.pick(dict.fromkeys(inputs.batch.streams, encoded)))
        return inputs.network.summary_rows(read.states, read.batch, self.stream)

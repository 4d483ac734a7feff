"""Visual question answering as classification over an answer vocabulary (Teney et al., CVPR 2018; LXMERT, UNITER).

    bce:            sum over answers of BCE(logit, score), scores 0, .3, .6, .9, 1 by how many annotators gave it, or 1
                    for each of a set of right answers (`all_right`)
    cross_entropy:  CE over answers with the best answer as the label; for sets with one answer per question
    drawn:          CE over answers with one of them as the label, drawn by the scores (LXMERT's released code,
        pretraining)

The sum is over questions, the count is their number. With bce a question without any answer in the vocabulary counts
(all its scores are 0, as published); with the others it has no label. A question that itm exchanged to another image
has no answer and does not count (as in LXMERT's pretraining).

A network whose layers mix text and image answers from the pooled text. Of a dual encoder the head itself combines both:

    product over the streams of relu(W norm(mean of the rows)), then a linear map to the answers

(the element-wise product of Antol et al., ICCV 2015, arXiv:1505.00468, with the mean rows of both encoders).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import MinLen
from torch import Tensor, nn
from torch.nn import functional as F

from vision.answers.answer_vocabulary import AnswerVocabulary
from vision.metrics.vqa_accuracy import Form
from vision.sequences.matching import MATCHED
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import path_at
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Epsilon, Location, Name, Share, Size, Word
from workbench.objectives._vectors import pool_rows
from workbench.pretraining.forward import HeadInputs, States
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network

Loss = Literal["bce", "cross_entropy", "drawn"]
NormPlace = Literal["behind", "before"]


class Answers(Objective):
    """Visual question answering as classification over an answer vocabulary (Teney et al., CVPR 2018; LXMERT, UNITER),
    for sequences of the builder `question_image`.

    Args:
        answers: the vocabulary, in normal form; an answer's place is its class. A list, or the file of one
            (`workbench prepare answers`).
        loss: see above.
        all_right: a question's answers are a set of right ones (DAQUAR), not those of annotators: each has the score 1.
        form: the normal form of the answers: VQA's, or `plain`, only in lower case, for text that is read (DocVQA).
        stream: the stream whose pooled output is read.
        norm_place: place of the norm of the classifier's inner states: after the activation (LXMERT, UNITER), or before
        it
            (ViLT).
        norm_eps: of that norm.
        pooled_size: width of a separate pooler of the objective, relu(W h + b) (VOLTA); by default the network's
        pooler.
        fused: the streams whose mean rows the head multiplies (see above), in place of the pooled output of `stream`;
            one without rows is left out. Their common width is `pooled_size`, by default that of the first one.
        fused_dropout: dropout of the fused rows, before and after their product.
        frequencies: the mean score of each answer in the training set. The biases of a new head begin at its log-odds;
            by default at 0, from where a short training with bce does not reach them.
    """

    def __init__(
        self,
        answers: list[Name] | Location,
        loss: Loss = "bce",
        all_right: bool = False,
        form: Form = "vqa",
        stream: Word = "text",
        norm_place: NormPlace = "behind",
        norm_eps: Epsilon = 1e-12,
        pooled_size: Size | None = None,
        fused: Annotated[list[Word], MinLen(1)] | None = None,
        fused_dropout: Share = 0.3,
        frequencies: list[Share] | None = None,
    ) -> None:
        known = _listed(answers)
        if len(known) < 2 or len(set(known)) != len(known):
            raise WorkbenchError(
                f"objective Answers: answers has {len(known)} entries, {len(set(known))} of them different; give "
                "two or more different answers"
            )
        if frequencies is not None and len(frequencies) != len(known):
            raise WorkbenchError(
                f"objective Answers: frequencies has {len(frequencies)} entries for {len(known)} answers; give one each"
            )
        self.vocabulary = AnswerVocabulary(tuple(known), form)
        self.loss: Loss = loss
        self.all_right = all_right
        self.stream = stream
        self.norm_place, self.norm_eps = norm_place, norm_eps
        self.pooled_size = pooled_size
        self.fused, self.fused_dropout, self.frequencies = fused, fused_dropout, frequencies

    @classmethod
    def class_names(cls, options: Mapping[str, Any]) -> list[str] | None:
        return _listed(options["answers"]) if options.get("answers") else None

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            if "answers" not in sequence.meta:
                raise WorkbenchError(
                    f"objective {self.name!r}: sequence {sequence.key!r} has no answers; use the builder "
                    "question_image on a corpus of questions with answers"
                )
            scores = self.vocabulary.targets(sequence.meta["answers"], all_right=self.all_right)
            asked = np.asarray([sequence.labels.get(MATCHED) != 0])
            sequence.targets[self.name] = {"scores": scores[None], "asked": asked}
            if self.loss == "drawn":
                label = _drawn(scores, draws.of(sequence.draw)) if asked[0] else -100
                sequence.targets[self.name]["labels"] = np.asarray([label], np.int64)
        return {}

    def count(self, batch: Batch) -> float:
        """The number of questions; with losses other than bce, of those with a label."""
        targets = batch.targets.get(self.name)
        if not targets:
            return 0.0
        asked, scores = targets["asked"], targets["scores"]
        return float((asked if self.loss == "bce" else asked & (scores > 0).any(1)).sum())

    def head(self, network: Network) -> Head:
        if self.fused is not None:
            return FusedAnswersHead(self, {stream: self.width(network, stream) for stream in self.fused})
        if self.stream not in network.poolers and self.pooled_size is None:
            raise WorkbenchError(
                f"objective {self.name!r} reads the pooled {self.stream}; set model.poolers: [{self.stream}]"
            )
        size = network.sizes[self.stream] if self.pooled_size else network.pooled_size(self.stream)
        return PooledAnswersHead(self, size)


def _listed(answers: list[str] | str) -> list[str]:
    return list(AnswerVocabulary.load(path_at(answers)).answers) if isinstance(answers, str) else answers


class AnswersLayer(nn.Linear):
    """The last layer, with a row for each answer. Its biases begin at the answers' frequencies, where these are
    known."""

    def __init__(self, size: int, options: Answers) -> None:
        super().__init__(size, len(options.vocabulary))
        self.options = options

    def initialise(self, scale: float) -> None:
        nn.init.normal_(self.weight, std=scale)
        nn.init.zeros_(self.bias)
        if self.options.frequencies is not None:
            shares = torch.tensor(self.options.frequencies).clamp(1e-6, 1 - 1e-6)
            self.bias.data.copy_(shares.logit())


class AnswersHead(Head):
    """Base of the heads with a row of logits for each question; `outer`, the last layer, has a row for each answer."""

    by_class = ("outer.weight", "outer.bias")

    def __init__(self, options: Answers) -> None:
        super().__init__()
        self.loss = options.loss

    def logits(self, network: Network, states: States, batch: Batch) -> Tensor:
        """[sequences, answers]."""
        raise NotImplementedError(f"{type(self).__name__} must define logits")

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metrics `accuracy` and `in_vocabulary`; output `logits` [sequences, answers]."""
        logits = self.logits(inputs.network, inputs.states, inputs.batch).float()
        scores, asked = inputs.targets["scores"], inputs.targets["asked"]
        if self.loss == "bce":
            loss = F.binary_cross_entropy_with_logits(logits, scores, asked[:, None].float(), reduction="sum")
        else:
            labels = inputs.targets["labels"] if self.loss == "drawn" else _best(scores, asked)
            loss = F.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
        with torch.no_grad():
            reached = scores.gather(1, logits.argmax(1, keepdim=True)).squeeze(1)
        known = (scores > 0).any(1) & asked
        right, answerable = ((reached * asked).sum(), asked.sum()), (known.sum(), asked.sum())
        return LossOutput(loss, {"accuracy": right, "in_vocabulary": answerable}, {"logits": logits})


class PooledAnswersHead(AnswersHead):
    """Linear to twice the width, GELU and norm in the configured order, linear to the answers."""

    def __init__(self, options: Answers, hidden_size: int) -> None:
        super().__init__(options)
        size = options.pooled_size or hidden_size
        self.stream = options.stream
        self.norm_first = options.norm_place == "before"
        self.pooler = nn.Linear(hidden_size, options.pooled_size) if options.pooled_size else None
        self.inner = nn.Linear(size, 2 * size)
        self.norm = nn.LayerNorm(2 * size, options.norm_eps)
        self.outer = AnswersLayer(2 * size, options)

    def logits(self, network: Network, states: States, batch: Batch) -> Tensor:
        if self.pooler is None:
            pooled = network.pool(states, batch, self.stream)
        else:
            pooled = F.relu(self.pooler(network.summary_rows(states, batch, self.stream)))
        inner = self.inner(pooled)
        logits: Tensor = self.outer(F.gelu(self.norm(inner)) if self.norm_first else self.norm(F.gelu(inner)))
        return logits


class FusedAnswersHead(AnswersHead):
    """The product of the streams' mean rows, each normed and mapped to one width, and a linear map to the answers."""

    def __init__(self, options: Answers, sizes: dict[str, int]) -> None:
        super().__init__(options)
        width = options.pooled_size or next(iter(sizes.values()))
        self.dropout = nn.Dropout(options.fused_dropout)
        self.maps = nn.ModuleDict(
            {
                stream: nn.Sequential(nn.LayerNorm(size), self.dropout, nn.Linear(size, width), nn.ReLU())
                for stream, size in sizes.items()
            }
        )
        self.outer = AnswersLayer(width, options)

    def logits(self, network: Network, states: States, batch: Batch) -> Tensor:
        product = torch.ones((), device=self.outer.weight.device)
        for stream, fused in self.maps.items():
            if stream in batch.streams:
                rows = fused(pool_rows(states[stream], batch, stream, "mean"))
                product = product * rows.masked_fill((batch.streams[stream].offsets.diff() == 0)[:, None], 1.0)
        logits: Tensor = self.outer(self.dropout(product))
        return logits


def _best(scores: Tensor, asked: Tensor) -> Tensor:
    """The answer with the highest of the scores [questions, answers]; -100 for a question without any."""
    best, labels = scores.max(1)
    return labels.masked_fill((best == 0) | ~asked, -100)


def _drawn(scores: np.ndarray, rng: np.random.Generator) -> int:
    """One of the answers, drawn by their scores [answers]; -100 if all are 0."""
    total = scores.sum(dtype=np.float64)
    return int(rng.choice(len(scores), p=scores / total)) if total else -100

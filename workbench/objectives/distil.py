"""Distillation: a network learns what a teacher predicts, or the states of its layers. One objective is one loss. A
recipe lists as many as it needs, each with its own `weight`, which may change over the run.

With s and t of the student and the teacher, summed over items, and over the pairs of layers:

    logits        T^2 KL(softmax(z_t / T) || softmax(z_s / T))                     Hinton et al., arXiv:1503.02531
    logits_mse    mean (z_s - z_t)^2 over the classes                              Tang et al., arXiv:1903.12136, eq. 3
    hidden        mean (W h_s - h_t)^2 over the features of each row               TinyBERT, arXiv:1909.10351, eq. 8, 9
    cosine        1 - cos(W h_s, h_t) of each row                                  DistilBERT, arXiv:1910.01108
    first_row     |W h_s / |W h_s| - h_t / |h_t||^2 of the first row               BERT-PKD, arXiv:1908.09355, eq. 7
    scores        mean (A_s - A_t)^2 of each sequence, A = q k^T / sqrt(d)         TinyBERT, eq. 7
    relations     KL(softmax(R_t) || softmax(R_s)) of each row, mean over heads,   MiniLM, arXiv:2002.10957, eq. 6 to 9;
                  R = a b^T / sqrt(d) with a, b of queries, keys and values        MiniLMv2, arXiv:2012.15828

W maps the student's width to the teacher's where they differ; the layers of one objective share it. The rows of a
sequence are compared with all of them, whatever they see.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.options.bounds import CountOrZero, Heads, Positive, Word
from workbench.models.context import ProjectionRecord
from workbench.pretraining.forward import HeadInputs, NetworkOutput
from workbench.pretraining.objective import Head, LossOutput, Objective
from workbench.sequences.batch import Batch

if TYPE_CHECKING:
    from workbench.models.network import Network

Pairs = list[tuple[int, int]]
"""Layers of the student and of the teacher, counted from 1; 0 is the embedding."""
OF_LOGITS = ("logits", "logits_mse")
OF_ROWS = ("hidden", "cosine", "first_row")


class Distil(Objective):
    """Distillation of a teacher's logits, states or attention into the objective's network. It changes no input.

    Args:
        loss: which, as above.
        of: for logits: the objective whose logits learn.
        taught_by: for logits: the objectives of the teachers, whose probabilities (with logits_mse their logits) are
            averaged.
        temperature: T of `logits`.
        teacher: for the other losses: the network whose layers are followed.
        layers: the pairs of layers. With S and T layers `every` pairs layer i with layer i T / S, `inner` leaves out
            the last one of several, `last` pairs the last ones, `embeddings` the rows before the first layer. A list
            has the teacher's layers, counted from 1, for the student's first, second, ...
        relations: for relations: the pairs of projections, such as qk, vv.
        relation_heads: into which the heads together are divided for `relations`; by default each network has its own,
            which must be equally many.
        stream: the stream whose rows are compared.
    """

    def __init__(
        self,
        loss: Literal["logits", "logits_mse", "hidden", "cosine", "first_row", "scores", "relations"],
        of: Word | None = None,
        taught_by: Annotated[list[Word], MinLen(1)] | None = None,
        temperature: Positive = 1.0,
        teacher: Word = "teacher",
        layers: Literal["every", "inner", "last", "embeddings"] | Annotated[list[CountOrZero], MinLen(1)] = "every",
        relations: Annotated[list[Literal["qq", "qk", "kk", "vv"]], MinLen(1)] | None = None,
        relation_heads: Heads | None = None,
        stream: Word = "text",
    ) -> None:
        if loss in OF_LOGITS and (of is None or taught_by is None):
            raise WorkbenchError(
                f"objective distil: loss: {loss} compares the logits of objectives; name them: of: classify, "
                "taught_by: [said]"
            )
        if loss in ("scores", "relations") and layers == "embeddings":
            raise WorkbenchError(f"objective distil: embeddings have no attention, which loss: {loss} compares")
        self.loss, self.of, self.taught_by = loss, of, taught_by or []
        self.temperature, self.teacher, self.layers, self.stream = temperature, teacher, layers, stream
        self.relations, self.relation_heads = relations or ["qk", "vv"], relation_heads
        if of is not None and loss in OF_LOGITS:
            self.after = (of, *self.taught_by)

    def count(self, batch: Batch) -> float:
        """The number of logits, of rows, or of sequences."""
        if self.loss in OF_LOGITS:
            labels = batch.targets.get(self.of or "", {}).get("labels")
            return float(batch.size if labels is None else len(labels))
        stream = batch.streams.get(self.stream)
        if stream is None:
            return 0.0
        return float(len(stream.lengths) if self.loss in ("first_row", "scores") else stream.rows)

    def head_among(self, network: Network, networks: Mapping[str, Network]) -> Head:
        if self.loss in OF_LOGITS:
            return LogitsHead(self.of or "", self.taught_by, self.temperature if self.loss == "logits" else None)
        if self.teacher not in networks:
            raise unknown("network", self.teacher, networks, f"objective {self.name!r}: teacher")
        teacher = networks[self.teacher]
        widths = self.width(network, self.stream), self.width(teacher, self.stream)
        pairs = self.pairs(len(network.layers), len(teacher.layers))
        if self.loss in OF_ROWS:
            return RowsHead(self.loss, self.teacher, pairs, self.stream, widths)
        relations = self.relations if self.loss == "relations" else None
        return AttentionHead(self.teacher, pairs, self.stream, relations, self.relation_heads)

    def pairs(self, ours: int, theirs: int) -> Pairs:
        """The pairs of layers of networks with so many.

        Raises:
            WorkbenchError: the teacher's number is no multiple of the student's, or a list names layers that are not
                there.
        """
        if self.layers == "embeddings":
            return [(0, 0)]
        if self.layers == "last":
            return [(ours, theirs)]
        if isinstance(self.layers, str):
            if theirs % ours:
                raise WorkbenchError(
                    f"objective {self.name!r}: layers: {self.layers} pairs each of the {ours} layers with one of the "
                    f"teacher's {theirs}, which is no multiple; list the teacher's layers: layers: [...]"
                )
            numbers = range(1, ours + (self.layers == "every" or ours == 1))
            return [(i, i * theirs // ours) for i in numbers]
        if len(self.layers) > ours or any(not 1 <= layer <= theirs for layer in self.layers):
            raise WorkbenchError(
                f"objective {self.name!r}: layers = {self.layers}; allowed: at most {ours} numbers (the layers of its "
                f"network), each from 1 to {theirs} (the teacher's)"
            )
        return list(enumerate(self.layers, 1))


def softened(ours: Tensor, theirs: Sequence[Tensor], temperature: float) -> Tensor:
    """T^2 KL(p || softmax(z / T)), summed over the items; p is the mean of softmax(z_t / T) over teachers.

    Args:
        ours: z [items, classes].
        theirs: of each teacher, of the same shape.
    """
    log_q = (ours.float() / temperature).log_softmax(-1)
    p = torch.stack([(each.float() / temperature).softmax(-1) for each in theirs]).mean(0)
    return (torch.xlogy(p, p) - p * log_q).sum() * temperature**2


class LogitsHead(Head):
    """Compares the logits of an objective with those of others on the same items."""

    def __init__(self, of: str, taught_by: list[str], temperature: float | None) -> None:
        super().__init__()
        self.of, self.taught_by, self.temperature = of, taught_by, temperature

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metric `agreement`, the share of items whose best class is the teachers'."""
        ours, *theirs = (self._logits(inputs, name) for name in (self.of, *self.taught_by))
        theirs = [each.detach() for each in theirs]
        for name, each in zip(self.taught_by, theirs, strict=True):
            if each.shape != ours.shape:
                raise WorkbenchError(
                    f"{self.of!r} has the logits {list(ours.shape)} and its teacher {name!r} {list(each.shape)}; give "
                    "both the same classes and the same items (`targets`)"
                )
        if self.temperature is None:
            squares = (ours.float() - torch.stack(theirs).float().mean(0)) ** 2
            return LossOutput((squares if squares.ndim == 1 else squares.mean(-1)).sum(), {})
        if ours.ndim < 2:
            raise WorkbenchError(
                f"{self.of!r} has one number for each item, and no distribution over classes; use loss: logits_mse"
            )
        mean = torch.stack([each.float().softmax(-1) for each in theirs]).mean(0)
        same = (ours.argmax(-1) == mean.argmax(-1)).sum()
        return LossOutput(softened(ours, theirs, self.temperature), {"agreement": (same, len(ours))})

    def _logits(self, inputs: HeadInputs, name: str) -> Tensor:
        outputs = inputs.outputs(name)
        if "logits" not in outputs:
            raise WorkbenchError(f"the objective {name!r} hands on no `logits` (found: {', '.join(outputs) or 'none'})")
        return outputs["logits"]


class RowsHead(Head):
    """Compares rows of the student's layers with those of the teacher's."""

    reads_hidden = True

    def __init__(self, loss: str, teacher: str, pairs: Pairs, stream: str, widths: tuple[int, int]) -> None:
        super().__init__()
        self.loss, self.teacher, self.pairs, self.stream = loss, teacher, pairs, stream
        ours, theirs = widths
        self.width = nn.Identity() if ours == theirs else nn.Linear(ours, theirs, bias=False)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        own, other = inputs.read(), inputs.read(network=self.teacher)
        stream = inputs.batch.streams[self.stream]
        first = stream.offsets[:-1] if self.loss == "first_row" else slice(None)
        if self.loss == "first_row" and not all(stream.lengths):  # a sequence without rows has no first one
            first = stream.offsets[:-1][stream.offsets.diff() > 0]
        total = torch.zeros((), device=own.states[self.stream].device)
        for ours, theirs in self.pairs:
            rows = self.width(own.hidden[ours][self.stream][first]).float()
            total = total + self._compared(rows, other.hidden[theirs][self.stream][first].detach().float())
        return LossOutput(total, {})

    def _compared(self, ours: Tensor, theirs: Tensor) -> Tensor:
        if self.loss == "hidden":
            return ((ours - theirs) ** 2).mean(-1).sum()
        if self.loss == "cosine":
            return (1 - F.cosine_similarity(ours, theirs, dim=-1)).sum()
        return ((F.normalize(ours, dim=-1) - F.normalize(theirs, dim=-1)) ** 2).sum()


class AttentionHead(Head):
    """Compares attention of the student's layers with that of the teacher's: scores, or relations."""

    def __init__(
        self, teacher: str, pairs: Pairs, stream: str, relations: Sequence[str] | None, heads: int | None
    ) -> None:
        super().__init__()
        self.teacher, self.pairs, self.stream, self.relations, self.heads = teacher, pairs, stream, relations, heads
        self.reads_projections = frozenset(layer - 1 for pair in pairs for layer in pair)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        reads = inputs.read(), inputs.read(network=self.teacher)
        total = torch.zeros((), device=reads[0].states[self.stream].device)
        for layers in self.pairs:
            ours, theirs = (self._record(read, layer) for read, layer in zip(reads, layers, strict=True))
            for own, other in self._matrices(ours, theirs):
                total = total + self._compared(own.float(), other.detach().float())
        return LossOutput(total, {})

    def _record(self, read: NetworkOutput, layer: int) -> ProjectionRecord:
        """The only call of a layer in which rows of the stream attend to rows of the stream."""
        found = [
            call
            for call in read.projections
            if call.layer == layer - 1 and self.stream in call.queries and call.queries == call.keys
        ]
        if len(found) != 1:
            raise WorkbenchError(
                f"layer {layer} has {len(found)} attentions of the rows of {self.stream!r} to one another, and one is "
                "compared; list other `layers`"
            )
        return found[0]

    def _matrices(self, ours: ProjectionRecord, theirs: ProjectionRecord) -> Iterator[tuple[Tensor, Tensor]]:
        """What is compared, of each sequence [heads, rows, rows]: scores, or each of the relations."""
        if self.heads is None and len(ours.q[0]) != len(theirs.q[0]):
            raise WorkbenchError(
                f"the student has {len(ours.q[0])} heads and its teacher {len(theirs.q[0])}; give both the same "
                "number, or compare relations with a number of `relation_heads`"
            )
        if self.relations is None:
            yield from zip(ours.scores(), theirs.scores(), strict=True)
            return
        for pair in self.relations:
            sides = [self._related(*(getattr(side, part) for part in pair)) for side in (ours, theirs)]
            yield from zip(*sides, strict=True)

    def _related(self, one: list[Tensor], other: list[Tensor]) -> list[Tensor]:
        return [_relation(a, b, self.heads or len(a)) for a, b in zip(one, other, strict=True)]

    def _compared(self, ours: Tensor, theirs: Tensor) -> Tensor:
        if self.relations is None:
            return ((ours - theirs) ** 2).mean()
        p, log_q = theirs.softmax(-1), ours.log_softmax(-1)
        return (torch.xlogy(p, p) - p * log_q).sum() / len(ours)


def _relation(one: Tensor, other: Tensor, heads: int) -> Tensor:
    """a b^T / sqrt(d) [heads, rows, rows] of projections [own heads, rows, size] that are divided anew into heads."""
    width = one.shape[0] * one.shape[2]
    if width % heads:
        raise WorkbenchError(f"relation_heads = {heads} does not divide the width {width} of the attention")
    a, b = (part.transpose(0, 1).reshape(len(part[0]), heads, -1).transpose(0, 1) for part in (one, other))
    return a @ b.transpose(-1, -2) / math.sqrt(a.shape[-1])

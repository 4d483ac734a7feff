"""Contrast of the two sides of a pair: which passage of the step belongs to which query.

    softmax   loss = sum over pairs of [ CE(s q_i . p_j over j; i) + CE(s q_j . p_i over j; i) ] / 2
    sigmoid   loss = - sum over i and j of log sigmoid(z_ij (s q_i . p_j + b)),  z_ij = 1 if i = j, else -1

with q and p the vectors of queries and passages, and s = exp(scale). The first is InfoNCE (van den Oord et al.,
arXiv:1807.03748): CLIP, SimCSE (arXiv:2104.08821), E5 (arXiv:2212.03533) and, in one direction, DPR (arXiv:2004.04906).
The second is SigLIP's (arXiv:2303.15343). By default the negatives are those of the whole step, over micro-batches and
ranks. The scores are computed for at most `CHUNK` pairs of a micro-batch at a time, and again for the gradient, so that
no table of all pairs is in memory.

The sides are two sequences of a sample, with the roles `query` and `passage` (the builder `text_pair`), or two streams
of one sequence. A sample may also have sequences with the roles `negative` (hard negatives, which are candidates for
all queries of the step) and `self` (a candidate for its own query alone: SimKGC, arXiv:2203.02167).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draw, Draws, digest
from workbench.core.options.bounds import CountOrZero, Figure, NotNegative, Number, Size, Word
from workbench.interop.sentence_modules import VectorLayers
from workbench.models.feed_forward import Ungated
from workbench.objectives._vectors import CommonSpace, Pool, Space
from workbench.pretraining.forward import HeadInputs, NetworkOutput
from workbench.pretraining.objective import BatchTargets, GlobalBatchHead, LossOutput, Objective
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Rows, Sequence
from workbench.sequences.transfer import on_device

if TYPE_CHECKING:
    from workbench.models.network import Network

Temperature = Annotated[Number, Ge(0.01), Le(100)]  # 1 / MAX_SCALE and above: the scale is clipped there
Loss = Literal["softmax", "sigmoid"]
MAX_SCALE, LOGIT_BIAS = 100.0, -10.0
CHUNK = 1024
QUERY, PASSAGE, NEGATIVE, SELF = "query", "passage", "negative", "self"
MIX = -7046029254386353131  # an odd number of 64 bits: query * MIX + passage is a number of a pair
ABSENT = -1  # number of a hard negative that a sample does not have


class Contrast(Objective):
    """Contrast of queries and passages over the global batch: InfoNCE (arXiv:1807.03748; SimCSE, E5, DPR), or the
    sigmoid loss (SigLIP, arXiv:2303.15343).

    Args:
        query, passage: the streams of the two sides; one stream where one encoder reads both.
        roles: the sides are two sequences of a sample, with these roles; otherwise two streams of one sequence.
        pool: the row of a sequence to use: its `first` row, `last` row, or `mean`.
        size: width of the common space; null: the pooled states are compared, without a projection.
        norm: a LayerNorm on the pooled state.
        bias: whether the projection has one.
        activation: behind the projection (SimCSE: tanh).
        cosine: vectors are normalised; otherwise their products are compared (DPR).
        loss: `softmax` (InfoNCE) or `sigmoid` (SigLIP), which has no directions.
        temperature: 1 / s at the start.
        learned: whether s is learned.
        logit_bias: b of the sigmoid loss at the start.
        margin: subtracted from the product of a pair (SimKGC).
        directions: each query chooses among the passages, and each passage among the queries (`both`), or the first
            alone (`forward`).
        negatives: over the `step`, or only the `micro-batch`.
        same: role of pairs with the same query or passage: `ignored` (left out), or `negative`.
        hard: most hard negatives of a sample, its first sequences with the role `negative`.
        self_negatives: the sequence with the role `self` is a candidate for the query of its sample.
        tap: the layer `tap` whose streams are compared; by default the last layer.
    """

    sides: tuple[str, str] = (QUERY, PASSAGE)
    identity = "pair_id"  # the name of the numbers of pairs among the embedded tensors
    target = "ids"  # and among the targets
    streams: dict[str, str]
    pools: dict[str, Pool]
    projected: frozenset[str]

    def __init__(
        self,
        query: Word = "text",
        passage: Word = "text",
        roles: bool = True,
        pool: Pool = "first",
        size: Size | None = None,
        norm: bool = False,
        bias: bool = False,
        activation: Ungated | None = None,
        cosine: bool = True,
        loss: Loss = "softmax",
        temperature: Temperature = 0.07,
        learned: bool = True,
        logit_bias: Figure = LOGIT_BIAS,
        margin: NotNegative = 0.0,
        directions: Literal["both", "forward"] = "both",
        negatives: Literal["step", "micro-batch"] = "step",
        same: Literal["ignored", "negative"] = "ignored",
        hard: CountOrZero = 0,
        self_negatives: bool = False,
        tap: Word | None = None,
    ) -> None:
        if query == passage and not roles:
            raise WorkbenchError(f"query = passage = {query!r}; name two different streams to compare")
        if (hard or self_negatives) and not roles:
            raise WorkbenchError("hard and self negatives are sequences with a role of their own; set roles: true")
        if activation is not None and size is None:
            raise WorkbenchError(f"activation = {activation} follows a projection, and size is null; set size")
        if bias and size is None:
            raise WorkbenchError("bias: true is that of a projection, and size is null; set size, or bias: false")
        if loss == "softmax" and logit_bias != LOGIT_BIAS:
            raise WorkbenchError(f"logit_bias = {logit_bias} is that of the sigmoid loss; leave it out with softmax")
        if loss == "sigmoid" and directions != "both":
            raise WorkbenchError(f"directions = {directions}: the sigmoid loss has no directions; leave it out")
        self.streams = dict(zip(self.sides, (query, passage), strict=True))
        self.pools = dict.fromkeys(self.streams.values(), pool)
        self.projected = frozenset(self.pools)
        self.roles, self.size, self.norm, self.bias = roles, size, norm, bias
        self.activation, self.cosine = activation, cosine
        self.sigmoid, self.logit_bias = loss == "sigmoid", logit_bias
        self.temperature, self.learned = temperature, learned
        self.margin, self.forward_only, self.same = margin, directions == "forward", same
        self.global_batch = negatives == "step"
        self.hard, self.self_negatives, self.tap = hard, self_negatives, tap

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sample in self._samples(sequences):
            sample[QUERY][0].targets[self.name] = {
                self.target: np.array([self.numbers(sample[QUERY][0], sample[PASSAGE][0])], np.int64),
                "hard": self._hard(sample.get(NEGATIVE, [])),
            }
        return {}

    def numbers(self, query: Sequence, passage: Sequence) -> list[int]:
        """Numbers of a pair: of its query and of its passage, which equal texts share; the last is the passage's."""
        return [self._number(QUERY, query), self._number(PASSAGE, passage)]

    def _samples(self, sequences: list[Sequence]) -> list[dict[str, list[Sequence]]]:
        """The sequences of each sample, by role.

        Raises:
            WorkbenchError: a sample lacks a side, has one twice, or one of them has no rows.
        """
        if not self.roles:
            samples = [{QUERY: [sequence], PASSAGE: [sequence]} for sequence in sequences]
        else:
            groups: dict[Draw, dict[str, list[Sequence]]] = {}
            for sequence in sequences:
                groups.setdefault(sequence.group, {}).setdefault(sequence.role, []).append(sequence)
            samples = list(groups.values())
        needed = (QUERY, PASSAGE, *([SELF] if self.self_negatives else []))
        for sample in samples:
            key = next(iter(sample.values()))[0].key
            if not all(len(sample.get(role, ())) == 1 for role in needed):
                found = ", ".join(f"{len(own)} {role or 'without a role'}" for role, own in sample.items())
                raise WorkbenchError(
                    f"objective {self.name!r}: sample {key!r} has these sequences: {found}; needed is one of each "
                    f"role ({', '.join(needed)}). Use the builder text_pair, without transforms that drop sequences"
                )
            alone = {SELF: 1} if self.self_negatives else {}
            for side, most in {**dict.fromkeys(self.streams, 1), NEGATIVE: self.hard, **alone}.items():
                stream = self._stream(side)
                if not all(sequence.length(stream) for sequence in sample.get(side, [])[:most]):
                    raise WorkbenchError(
                        f"objective {self.name!r}: sequence {key!r} has no rows in {stream!r} as its {side}. "
                        "Remove such samples from the corpus"
                    )
        return samples

    def _stream(self, side: str) -> str:
        return self.streams.get(side, self.streams[self.sides[1]])

    def _number(self, side: str, sequence: Sequence) -> int:
        """A number that equal texts share; for other media that of the record.

        Rows that belong to those of another stream, as learned queries do, stand for that stream.
        """
        fields = sequence.fields(self._stream(side))
        while isinstance(of := fields.get("of"), Rows):
            fields = sequence.fields(of.stream)
        ids = fields.get("input_ids")
        return digest(PASSAGE, str(sequence.key) if ids is None else np.asarray(ids, np.int64).tobytes().hex()) >> 65

    def _hard(self, negatives: list[Sequence]) -> np.ndarray:
        """The numbers of a sample's hard negatives [1, hard]."""
        numbers = [self._number(NEGATIVE, sequence) for sequence in negatives[: self.hard]]
        return np.array([numbers + [ABSENT] * (self.hard - len(numbers))], np.int64)

    def count(self, batch: Batch) -> float:
        """The number of pairs."""
        return float(len(batch.targets.get(self.name, {}).get(self.target, ())))

    def space(self) -> Space:
        """The layers of the common space."""
        return Space(
            pools=self.pools,
            size=self.size,
            projected=self.projected,
            norm=self.norm,
            bias=self.bias,
            activation=self.activation,
            cosine=self.cosine,
            tap=self.tap,
        )

    def head(self, network: Network) -> GlobalBatchHead:
        return ContrastHead(self, self.compared_widths(network))

    def compared_widths(self, network: Network) -> dict[str, int]:
        """The width of each stream.

        Raises:
            WorkbenchError: vectors of different widths would be compared.
        """
        sizes = {stream: self.width(network, stream) for stream in self.pools}
        compared = {self.size if self.size and stream in self.projected else sizes[stream] for stream in self.pools}
        if len(compared) > 1:
            widths = ", ".join(f"{stream} {width}" for stream, width in sizes.items())
            raise WorkbenchError(
                f"objective {self.name!r}: vectors of {' and '.join(map(str, sorted(compared)))} numbers cannot be "
                f"compared; the widths of the streams are {widths}. Set size"
            )
        return sizes


class Candidates(NamedTuple):
    """What queries choose among, in addition to the passages: vectors [n, size] that all of them see, which of these
    each ignores [queries, n], a vector for each query alone [queries, size], and which queries ignore theirs
    [queries]."""

    vectors: Tensor
    ignored: Tensor
    alone: Tensor | None
    alone_ignored: Tensor | None


class ContrastHead(GlobalBatchHead):
    """The common space, the scale, and the bias of the sigmoid loss."""

    def __init__(self, options: Contrast, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.sides, self.identity, self.target = options.sides, options.identity, options.target
        self.streams, self.roles = options.streams, options.roles
        self.ignore_same = options.same == "ignored"
        self.sigmoid, self.margin, self.forward_only = options.sigmoid, options.margin, options.forward_only
        self.hard, self.self_negatives, self.learned = options.hard, options.self_negatives, options.learned
        self.space = CommonSpace(options.space(), self.streams, sizes)
        scale = torch.tensor(math.log(1 / options.temperature))
        if self.learned:
            self.logit_scale = nn.Parameter(scale)
        else:
            self.register_buffer("logit_scale", scale, persistent=False)
        self.logit_bias = nn.Parameter(torch.tensor(float(options.logit_bias))) if self.sigmoid else None

    def vectors(self, read: NetworkOutput, stream: str) -> Tensor:
        """As `CommonSpace.forward`, of all sequences."""
        vectors: Tensor = self.space(read, stream)
        return vectors

    def vector_layers(self, stream: str) -> VectorLayers:
        """The layers of `vectors`, for an export."""
        return self.space.vector_layers(stream)

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        read, ids = inputs.read(), inputs.targets[self.target]
        if not self.roles:
            embedded = {side: self.vectors(read, stream) for side, stream in self.streams.items()}
            return {**embedded, self.identity: ids}
        batch = read.batch
        passage = self.streams[PASSAGE]
        embedded = {side: self.space(read, stream, batch.of_role(side)) for side, stream in self.streams.items()}
        if self.hard:
            embedded |= {"hard": self._hard(read, len(ids)), "hard_id": inputs.targets["hard"]}
        if self.self_negatives:
            embedded["self"] = self.space(read, passage, batch.of_role(SELF))
        return {**embedded, self.identity: ids}

    def _hard(self, read: NetworkOutput, samples: int) -> Tensor:
        """The vectors of the hard negatives [samples, hard, size], 0 where there are fewer."""
        batch = read.batch
        place = {batch.groups[number]: place for place, number in enumerate(batch.of_role(QUERY))}
        chosen, slots, used = [], [], dict.fromkeys(place, 0)
        for number in batch.of_role(NEGATIVE):
            group = batch.groups[number]
            if used[group] < self.hard:
                chosen.append(number)
                slots.append(place[group] * self.hard + used[group])
            used[group] += 1
        vectors: Tensor = self.space(read, self.streams[PASSAGE], chosen)
        slot = on_device(torch.tensor(slots, dtype=torch.long), vectors.device)
        return (
            vectors.new_zeros(samples * self.hard, vectors.shape[1])
            .index_copy(0, slot, vectors)
            .unflatten(0, (samples, self.hard))
        )

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        self.clip_scale()
        start, stop, _ = own.indices(len(embedded[self.identity]))
        parts = [slice(first, min(first + CHUNK, stop)) for first in range(start, max(stop, start + 1), CHUNK)]
        if len(parts) == 1:
            found = [self._terms(embedded, parts[0])]
        else:
            found = [checkpoint(self._terms, embedded, part, use_reentrant=False) for part in parts]
        total, *right = (torch.stack(values).sum(0) for values in zip(*found, strict=True))
        pairs = float(stop - start)
        names = (f"{self.sides[0]}_to_{self.sides[1]}", f"{self.sides[1]}_to_{self.sides[0]}")
        metrics: dict[str, tuple[Tensor | float, Tensor | float]] = {
            name: (count, pairs) for name, count in zip(names, right, strict=False)
        }
        if self.learned:
            metrics["scale"] = (self.logit_scale.detach().exp() * pairs, pairs)
        if self.logit_bias is not None:
            metrics["bias"] = (self.logit_bias.detach() * pairs, pairs)
        return LossOutput(total, metrics)

    def clip_scale(self) -> None:
        """Clip the learned scale, as CLIP does; SigLIP's is free."""
        if self.learned and not self.sigmoid:
            with torch.no_grad():
                self.logit_scale.clamp_(max=math.log(MAX_SCALE))

    def scores(self, queries: Tensor, keys: Tensor, ignored: Tensor | None) -> Tensor:
        """s q . k (+ b) in float32 [queries, keys], -inf for keys that are not candidates."""
        with torch.autocast(queries.device.type, enabled=False):
            logits = self.products(self.logit_scale.float().exp() * queries.float(), keys.float())
            logits = logits if self.logit_bias is None else logits + self.logit_bias.float()
        return logits if ignored is None else logits.masked_fill(ignored, float("-inf"))

    def products(self, queries: Tensor, keys: Tensor) -> Tensor:
        """q . k [queries, keys]."""
        return queries @ keys.T

    def ignored(self, embedded: dict[str, Tensor], own: slice, backward: bool) -> Tensor | None:
        """Pairs whose passages are no negatives of the own queries [own, step], or `backward` whose queries are none of
        the own passages: those with the same text. None: all are."""
        if not self.ignore_same:
            return None
        ids = embedded[self.identity]
        everyone = torch.arange(len(ids), device=ids.device)
        equal = ids[own, None] == ids
        return (equal if ids.ndim == 1 else equal.any(-1)) & (everyone[own, None] != everyone)

    def _terms(self, embedded: dict[str, Tensor], own: slice) -> tuple[Tensor, ...]:
        """The loss of some pairs, and the number of right choices in each direction."""
        query, passage = (embedded[side] for side in self.sides)
        answers = torch.arange(len(query), device=query.device)[own]
        ignored, more = self.ignored(embedded, own, backward=False), self._candidates(embedded, own)
        forward = self._direction(query[own], passage, answers, ignored, more)
        if self.sigmoid or self.forward_only:
            return forward
        ignored = self.ignored(embedded, own, backward=True)
        backward = self._direction(passage[own], query, answers, ignored, None)
        return (forward[0] + backward[0]) / 2, forward[1], backward[1]

    def _candidates(self, embedded: dict[str, Tensor], own: slice) -> Candidates | None:
        if not self.hard and not self.self_negatives:
            return None
        ids = embedded[self.identity][own]
        alone = (embedded["self"][own], self.ignored_self(ids)) if self.self_negatives else (None, None)
        if not self.hard:
            none = ids.new_zeros(len(ids), 0, dtype=torch.bool)
            return Candidates(embedded[self.sides[0]][:0], none, *alone)
        numbers = embedded["hard_id"].flatten()
        ignored = (numbers == ABSENT) | (ids[:, -1:] == numbers)
        if self.ignore_same:
            ignored |= self._right(embedded[self.identity], own, numbers)
        return Candidates(embedded["hard"].flatten(0, 1), ignored, *alone)

    def _right(self, ids: Tensor, own: slice, numbers: Tensor) -> Tensor:
        """Which passages are right ones of a query of the step that equals the own one [own, passages]."""
        right = (ids[:, 0] * MIX + ids[:, -1]).sort().values
        asked = ids[own, :1] * MIX + numbers
        return right[torch.searchsorted(right, asked).clamp(max=len(right) - 1)] == asked

    def ignored_self(self, ids: Tensor) -> Tensor | None:
        """The queries whose own candidate is no negative [own], from the numbers of their pairs. None: all are."""
        return None

    def _direction(
        self, queries: Tensor, keys: Tensor, answers: Tensor, ignored: Tensor | None, more: Candidates | None
    ) -> tuple[Tensor, Tensor]:
        """The loss of the queries for their keys `answers`, and the number of queries that rank them first.

        Args:
            queries: [own, size].
            keys: [step, size].
            answers: the row of each query's key [own].
            ignored: keys that are not candidates [own, step].
            more: candidates that are no keys.
        """
        logits = self.scores(queries, keys, ignored)
        right = F.one_hot(answers, len(keys)).bool() if self.margin or self.sigmoid else None
        if right is not None and self.margin:
            logits = torch.where(right, logits - self.margin * self.logit_scale.exp(), logits)
        if more is not None:
            logits = torch.cat(
                [logits, self.scores(queries, more.vectors, more.ignored), *self._alone(queries, more)], 1
            )
        found = (logits.detach().argmax(1) == answers).sum()
        if right is None or not self.sigmoid:
            return F.cross_entropy(logits, answers, reduction="sum"), found
        signs = F.pad(right, (0, logits.shape[1] - len(keys)))
        return -F.logsigmoid(torch.where(signs, logits, -logits)).sum(), found

    def _alone(self, queries: Tensor, more: Candidates) -> list[Tensor]:
        """The score of each query with its own candidate [own, 1]."""
        if more.alone is None:
            return []
        scores = self.logit_scale.float().exp() * (queries.float() * more.alone.float()).sum(1, keepdim=True)
        scores = scores if self.logit_bias is None else scores + self.logit_bias.float()
        left_out = more.alone_ignored
        return [scores if left_out is None else scores.masked_fill(left_out[:, None], float("-inf"))]

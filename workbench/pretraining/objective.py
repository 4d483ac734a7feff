"""What an objective is: both halves of a pretraining signal in one file.

The half in the loader's workers: `arrange` acts on samples before the sequence builder, `corrupt` on sequences
after it. It may hold read-only resources, never weights. The half on the device: the module that `head` makes,
which turns streams into a sum and metrics. The trainer divides by the count over all micro-batches and ranks.

`Objective`, `Head`, `LossOutput`  the contract
`Continuation`                     how a network continues a sequence: what an objective says of it for generation
`SoftTargets`                      labels mixed with what a moving average of the network predicts
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.components.building import named_by, options_of
from workbench.components.calls import Returns, value_in_words
from workbench.core.errors import unknown
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Word
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import Batch
from workbench.sequences.protocols import Masking
from workbench.sequences.sequence import Sample, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder


BatchTargets = dict[str, np.ndarray]


class LossOutput(NamedTuple):
    """`loss` is a sum over labels (scalar, float32); `metrics` are name -> (sum, count), numbers or 0-d tensors.

    `outputs` is handed on to the heads that come `after` this one, and what of it `Head.keeps` names to `after_step`.
    """

    loss: Tensor
    metrics: dict[str, tuple[Tensor | float, Tensor | float]]
    outputs: dict[str, Tensor] = {}  # noqa: RUF012 - never changed


class Head(nn.Module):
    """An objective's module. A head may read a network's weights (tied decoders) but does not own them.

    Attributes:
        reads_hidden: whether the reads of its micro-batches keep the states of every layer.
        reads_attention: of which layers they keep the attention weights, by their numbers in the stack; True: of all
            (`workbench.pretraining.forward.NetworkOutput`).
        keeps: what of `LossOutput.outputs` is gathered over the micro-batches and ranks of a step for `after_step`.
        by_token: its parameters that have a row for each token of the vocabulary.
        by_class: those that have a row for each of `Objective.class_names`; another run takes them over by name.
    """

    reads_hidden: bool = False
    reads_attention: bool | frozenset[int] = False
    keeps: tuple[str, ...] = ()
    by_token: tuple[str, ...] = ()
    by_class: tuple[str, ...] = ()

    def forward(self, seen: HeadInputs) -> LossOutput:
        """The loss of one micro-batch. `seen.states[stream]` is [rows, hidden_size]."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def averaged(self) -> nn.Module | None:
        """What of this head follows it where its network has a follower: the head finds the moving average of this
        module in `HeadInputs.averaged`."""
        return None


class GlobalBatchHead(Head):
    """The head of a global-batch objective: its loss looks at the samples of the whole step.

    `embed` gives tensors of one micro-batch, with a row for each of what is compared: sequences, or the mentions in
    them. The trainer gathers them over micro-batches and ranks, in lane order, and calls `loss` for each micro-batch:
    with the tensors of the whole step, and where its own rows are among them. The sum of what these calls give is the
    step's loss; it is divided by the global count. So no rank does the work of another, and no more than the terms of
    one micro-batch is in memory at once. What is embedded is also such a head's `outputs`, for the heads behind it,
    for `keeps` and for `measured`.
    """

    def embed(self, seen: HeadInputs) -> dict[str, Tensor]:
        """Tensors of equally many rows (of none, where nothing in the micro-batch is to be compared), by name: for
        every micro-batch the same names."""
        raise NotImplementedError(f"{type(self).__name__} must define embed")

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        """The terms of the rows `own` (`embedded[name][own]`) among all those of the step."""
        raise NotImplementedError(f"{type(self).__name__} must define loss")

    def forward(self, seen: HeadInputs) -> LossOutput:
        embedded = self.embed(seen)
        return self.loss(embedded, slice(0, rows_of(embedded)))._replace(outputs=embedded)


def rows_of(embedded: Mapping[str, Tensor]) -> int:
    """How many rows a head has embedded: as many in each tensor."""
    return len(next(iter(embedded.values())))


class Objective:
    """The worker half. A subclass overrides the hooks it needs; `name` is set from the recipe.

    `global_batch` says that `head` returns a `GlobalBatchHead`; `after` names objectives of the task whose heads run
    first;
    `reads` the fields of samples that its labels are built from: where no corpus has one, a run does not begin; nor
    does one whose objective `splits` texts in two, where no text of the corpora has two sentences;
    `reads_spans` says that it reads linked entities: where no corpus has any, a run does not begin either;
    `masking` chooses what it hides: what that `reads`, some corpus must have too;
    `prepared_by` is the command that makes its corpora, where what these hold doesn't say it, and `unlabelled` says why
    it may have found nothing to learn; both are for messages;
    `makes` names the options that name streams which `corrupt` makes: no builder brings these, and fine-tuning with
    another objective leaves them empty;
    `measured` what of the head's `LossOutput.outputs` is gathered in a held-out pass, for `measure`; `told` what an
    evaluation gathers beside, for its items, where the head makes it; `predicts` what its `labels` are, for whoever
    looks at them: `tokens` of the run's tokenizer, or `numbers` with a meaning of their own;
    `own_tokens` the ids of tokens that the objective has and the tokenizer need not have, with how people read them.
    """

    name: str = ""
    global_batch: bool = False
    after: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    splits: bool = False
    reads_spans: bool = False
    masking: Masking | None = None
    prepared_by: str = ""
    unlabelled: str = "does its data fit it?"
    makes: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    predicts: Literal["tokens", "numbers"] = "numbers"

    @classmethod
    def goes_by_words(cls, options: Mapping[str, Any]) -> str | None:
        """What of an objective with these options goes by `word_ids`, for messages; None where nothing does."""
        masking, fate = options.get("masking"), options.get("replace")
        if masking is not None:
            part, chosen, place = named_by("masking", masking, "")
            if part.goes_by_words(**{**options_of(part).defaults, **chosen}):
                return place
        per = fate.get("per") if isinstance(fate, Mapping) else getattr(fate, "per", None)
        return "replace: per = 'word'" if per == "word" else None

    @classmethod
    def class_names(cls, options: Mapping[str, Any]) -> list[str] | None:
        """What the rows stand for that the head names in `by_class`, of an objective with these options."""
        return None

    @property
    def own_tokens(self) -> Mapping[int, str]:
        return {}

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """Change samples before they become sequences (a sample's labels go to `sample["labels"]`)."""
        return samples

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Change the sequences in place and write `sequence.targets[self.name]`. `draws.progress` is that of the run.

        Never touches a row whose `taken` is set; sets it on the rows it labels. Returns arrays that belong to the
        batch as a whole. Each field is present in every sequence that has any target of this objective.
        """
        return {}

    def count(self, batch: Batch) -> float:
        """How many labels the loss sums over; by default the number of `labels` in the targets that are not -100."""
        targets = batch.targets.get(self.name, {})
        return float((targets["labels"] != -100).sum()) if "labels" in targets else 0.0

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics of a held-out pass as a whole, where no sums give them (F1, correlations, ranks).

        Args:
            made: what `measured` names, of all micro-batches and ranks, in the order of the pass, on the CPU.
        """
        return {}

    def continuation(self, builder: Builder) -> Continuation | None:
        """How its network continues with a sequence (`workbench generate`); None where it predicts no next tokens.

        Args:
            builder: of the task, in evaluation mode; it makes the prompts.
        """
        return None

    def width(self, network: Network, stream: str) -> int:
        """The hidden size of a stream of the network.

        Raises:
            WorkbenchError: the network has no such stream.
        """
        if stream not in network.sizes:
            raise unknown("stream", stream, network.sizes, f"objective {self.name!r}")
        return network.sizes[stream]

    def head(self, network: Network) -> Head:
        """The module with the loss, for this network's sizes."""
        raise NotImplementedError(f"{type(self).__name__} must define head")


class Continuation:
    """A stream grows by a row at a time, from left to right: no row sees those after it.

    A subclass says what a prompt is; what else differs from the usual it overrides.

    Args:
        stream: the stream that grows.
        end: the token that ends it; None where none does.

    Attributes:
        counted: the fields that count on from row to row.
        behind: whether the objective learns what stands behind a text as the builder `text_to_text` lays it, for
            `workbench finetune generate`.
    """

    counted: tuple[str, ...] = ("position_ids", "rank")
    behind: bool = True

    def __init__(self, stream: str, end: int | None) -> None:
        self.stream = stream
        self.end = end

    def arrange(self, sample: Sample) -> Sample:
        """The sample of which the builder is to make the prompt."""
        return sample

    def prompt(self, sequence: Sequence) -> None:
        """Make of a sequence, as the task's builder gives it, one to continue with: its stream `stream` ends with the
        row that predicts the first token."""
        raise NotImplementedError(f"{type(self).__name__} must define prompt")

    def next_rows(self, last: dict[str, Tensor], tokens: Tensor) -> dict[str, Tensor]:
        """Integer fields of each sequence's last row -> those of the row after it, each [sequences].

        The row holds `tokens`; what is `counted` counts on, all else stays as it is.
        """
        counted = {name: last[name] + 1 for name in self.counted if name in last}
        return {**last, **counted, "input_ids": tokens}

    def asking_rows(self, last: dict[str, Tensor]) -> dict[str, Tensor] | None:
        """The rows that predict the next tokens, where the last ones do not: one behind each sequence's last row (a
        mask in the next token's place), which is read and not kept. None: the last rows predict.

        Args:
            last: integer fields of each sequence's last row, each [sequences], as are those that come back.
        """
        return None

    def logits(self, head: Any, network: Network, rows: Tensor) -> Tensor:
        """What the objective's head says of the next token [rows, vocab_size], by the states of the rows that
        predict it."""
        found: Tensor = head.logits(network, rows)
        return found


def _is_loss(found: Any, *_: Any) -> bool:
    return (
        isinstance(found, LossOutput)
        and isinstance(found.loss, Tensor)
        and found.loss.ndim == 0
        and found.loss.is_floating_point()
        and isinstance(found.metrics, dict)
        and all(isinstance(name, str) and name != "loss" and _is_metric(pair) for name, pair in found.metrics.items())
        and isinstance(found.outputs, dict)
        and all(isinstance(value, Tensor) for value in found.outputs.values())
    )


def _loss_in_words(found: Any, *_: Any) -> str:
    if isinstance(found, LossOutput) and isinstance(found.loss, Tensor) and isinstance(found.metrics, Mapping):
        return f"a LossOutput with the loss {value_in_words(found.loss)} and metrics {value_in_words(found.metrics)}"
    return value_in_words(found)


def _is_metric(pair: Any) -> bool:
    """A sum and a count, numbers or tensors without dimensions."""
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(isinstance(value, int | float) or (isinstance(value, Tensor) and value.ndim == 0) for value in pair)
    )


def _is_count(found: Any, *_: Any) -> bool:
    return isinstance(found, Real) and not isinstance(found, bool) and 0 <= float(found) < math.inf


def _are_embedded(found: Any, *_: Any) -> bool:
    return (
        isinstance(found, dict)
        and all(isinstance(inner, Tensor) and inner.ndim for inner in found.values())
        and len({len(inner) for inner in found.values()}) == 1
    )


BATCH_TARGETS = Returns("a dict of arrays that belong to the whole batch, {} for none", kind=dict)
COUNT = Returns("how many labels the loss sums over, a finite number, 0 or more", _is_count, always=True)
DROPPED = Returns(
    "a dict of counts by reason",
    lambda f, *_: isinstance(f, dict) and all(isinstance(reason, str) and _is_count(n) for reason, n in f.items()),
    always=True,
)
CONTINUATION = Returns(
    "a workbench.pretraining.objective.Continuation, or None", lambda f, *_: f is None or isinstance(f, Continuation)
)
HEAD = Returns("a workbench.pretraining.objective.Head", kind=Head)
GLOBAL_BATCH_HEAD = Returns(
    "a workbench.pretraining.objective.GlobalBatchHead, as the objective is global-batch", kind=GlobalBatchHead
)
LOSS = Returns(
    "workbench.pretraining.objective.LossOutput(loss, metrics): the sum as a tensor without dimensions, and a dict of "
    "(sum, count), numbers or such tensors, by name, none of them named 'loss', which is the loss's own name",
    _is_loss,
    _loss_in_words,
    kind=LossOutput,
)
EMBEDDED = Returns("a dict of tensors of equally many rows, one for each of what is compared", _are_embedded, kind=dict)


@dataclass(frozen=True)
class SoftTargets:
    """Options of soft targets: labels mixed with what a moving average of the network predicts (momentum distillation,
    ALBEF, arXiv:2107.07651, section 3.3).

        L = - sum over rows i and classes c of [ (1 - a) y_ic + a q_ic ] log p_ic

    y are the labels, p = softmax(logits) and q = softmax of the follower's logits, through which no gradient goes.

    Attributes:
        follower: the network that follows the objective's own.
        share: a, of the follower's distribution in the targets.
        ramp: the part of the run in which a rises from 0 to `share`, linearly.
    """

    follower: Word
    share: Share
    ramp: Share = 0.0

    def share_at(self, progress: float) -> float:
        """a, at this progress of the run (0 to 1)."""
        return self.share if progress >= self.ramp else self.share * progress / self.ramp


def soft_cross_entropy(logits: Tensor, labels: Tensor, taught: Tensor, share: float | Tensor) -> Tensor:
    """The sum L in float32.

    Args:
        logits: [rows, classes]; -inf for what is no candidate.
        labels: [rows].
        taught: the follower's logits [rows, classes], -inf where `logits` are.
        share: a, one for all or of each row [rows].
    """
    log_p = F.log_softmax(logits.float(), -1)
    hard = F.nll_loss(log_p, labels, reduction="none")
    q = taught.detach().float().softmax(-1)
    soft = -(q * log_p.masked_fill(log_p == float("-inf"), 0.0)).sum(-1)
    return ((1 - share) * hard + share * soft).sum()

"""The contract of an objective: both halves of a pretraining signal in one file.

The half in the loader's workers: `arrange` acts on samples before the sequence builder, `corrupt` on sequences
after it. It may hold read-only resources, never weights. The half on the device: the module that `head` returns,
which turns streams into a sum and metrics. The trainer divides by the count over all micro-batches and ranks.

`Objective`, `Head`, `LossOutput`  the contract
`Continuation`                     how a network continues a sequence, as an objective defines it for generation
`SoftTargets`                      labels mixed with the predictions of a moving average of the network
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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

    `outputs` is passed to the heads that come `after` this one; those named in `Head.keeps` also to `after_step`.
    """

    loss: Tensor
    metrics: dict[str, tuple[Tensor | float, Tensor | float]]
    outputs: dict[str, Tensor] = {}  # noqa: RUF012 - never changed


class Head(nn.Module):
    """The module of an objective. A head may read a network's weights (tied decoders) but does not own them.

    Attributes:
        reads_hidden: whether the reads of its micro-batches keep the states of every layer.
        reads_attention: the layers whose attention weights they keep, by their numbers in the stack; True: all
            (`workbench.pretraining.forward.NetworkOutput`).
        reads_projections: likewise the layers whose queries, keys and values they keep.
        keeps: the `LossOutput.outputs` that are gathered over the micro-batches and ranks of a step for `after_step`.
        by_token: its parameters that have a row for each token of the vocabulary.
        by_class: those that have a row for each of `Objective.class_names`; another run loads them by name.
    """

    reads_hidden: bool = False
    reads_attention: bool | frozenset[int] = False
    reads_projections: bool | frozenset[int] = False
    keeps: tuple[str, ...] = ()
    by_token: tuple[str, ...] = ()
    by_class: tuple[str, ...] = ()

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """The loss of one micro-batch. `inputs.states[stream]` is [rows, hidden_size]."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def averaged(self) -> nn.Module | None:
        """The module of this head that has a moving average where its network has a follower. The head gets the average
        from `HeadInputs.averaged`."""
        return None


class GlobalBatchHead(Head):
    """The head of a global-batch objective: its loss compares the samples of the whole step.

    `embed` returns tensors of one micro-batch, with a row for each sequence or mention that is compared. The trainer
    gathers them over micro-batches and ranks, in lane order, and calls `loss` for each micro-batch. Its arguments are
    the tensors of the whole step, and the slice of the micro-batch's own rows. The sum of these terms is the step's
    loss; it is divided by the global count. So no rank does the work of another, and only the terms of one micro-batch
    are in memory at once. The embedded tensors are also such a head's `outputs`, for the heads behind it, for `keeps`
    and for `measured`.
    """

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        """Tensors of equally many rows (of none, where the micro-batch has nothing to compare), by name; the names are
        the same for every micro-batch."""
        raise NotImplementedError(f"{type(self).__name__} must define embed")

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        """The terms of the rows `own` (`embedded[name][own]`) among all those of the step."""
        raise NotImplementedError(f"{type(self).__name__} must define loss")

    def forward(self, inputs: HeadInputs) -> LossOutput:
        embedded = self.embed(inputs)
        return self.loss(embedded, slice(0, rows_of(embedded)))._replace(outputs=embedded)


def rows_of(embedded: Mapping[str, Tensor]) -> int:
    """The number of rows that a head has embedded; every tensor has the same."""
    return len(next(iter(embedded.values())))


class Objective:
    """An objective's half in the loader's workers. A subclass overrides the hooks it needs; `name` is set from the
    recipe.

    Attributes:
        global_batch: whether `head` returns a `GlobalBatchHead`.
        after: names of objectives of the task whose heads run first.
        reads: the fields of samples from which its labels are built. A run does not begin where no corpus has one.
        splits: whether it splits texts in two. A run does not begin where no text of the corpora has two sentences.
        reads_spans: whether it reads linked entities. A run does not begin where no corpus has any.
        masking: its masking strategy. Some corpus must have the fields that the strategy `reads`, too.
        prepared_by: the command that makes its corpora, where their fields don't show it; for messages.
        unlabelled: the reason why it may have found nothing to learn; for messages.
        makes: the options that name streams which `corrupt` makes. No builder makes these, and fine-tuning with another
            objective leaves them empty.
        measured: the `LossOutput.outputs` of its head that are gathered in a held-out pass, for `measure`.
        reported: the outputs that an evaluation gathers as well, for its items, where the head returns them.
        predicts: the meaning of its `labels`: `tokens` of the run's tokenizer, or `numbers` with a meaning of their
            own.
        looks_up: its targets that hold numbers of rows of a stream's table, each with that stream, which its head looks
            up in the embedding. Tables that lie in a file or are divided over ranks are read before the forward pass.
        own_tokens: the ids of tokens that the objective has and the tokenizer need not have, with readable names.
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
        """The option by which an objective with these options reads `word_ids`, for messages; None where none does."""
        masking, fate = options.get("masking"), options.get("replace")
        if masking is not None:
            part, chosen, place = named_by("masking", masking, "")
            if part.goes_by_words(**{**options_of(part).defaults, **chosen}):
                return place
        per = fate.get("per") if isinstance(fate, Mapping) else getattr(fate, "per", None)
        return "replace: per = 'word'" if per == "word" else None

    @classmethod
    def class_names(cls, options: Mapping[str, Any]) -> list[str] | None:
        """The classes of the rows of the parameters in `Head.by_class`, of an objective with these options."""
        return None

    @classmethod
    def constant_loss(cls, options: Mapping[str, Any], samples: Iterable[Sample]) -> float | None:
        """The mean loss of the best constant prediction over samples, of an objective with these options; None where it
        is not known."""
        return None

    @property
    def own_tokens(self) -> Mapping[int, str]:
        return {}

    @property
    def looks_up(self) -> Mapping[str, str]:
        return {}

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """Change samples before they become sequences (a sample's labels go to `sample["labels"]`)."""
        return samples

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Change the sequences in place and write `sequence.targets[self.name]`. `draws.progress` is that of the run.

        Never changes a row whose `taken` is set; sets it on the rows it labels. Returns arrays that belong to the
        batch as a whole. Each field is present in every sequence that has any target of this objective.
        """
        return {}

    def count(self, batch: Batch) -> float:
        """The number of labels that the loss sums over; by default the number of `labels` in the targets that are not
        -100."""
        targets = batch.targets.get(self.name, {})
        return float((targets["labels"] != -100).sum()) if "labels" in targets else 0.0

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics of a held-out pass as a whole, which are no sums (F1, correlations, ranks).

        Args:
            made: the outputs that `measured` names, of all micro-batches and ranks, in the order of the pass, on the
                CPU.
        """
        return {}

    def continuation(self, builder: Builder) -> Continuation | None:
        """How its network continues a sequence (`workbench generate`); None where it does not predict the next token.

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

    def head_among(self, network: Network, networks: Mapping[str, Network]) -> Head:
        """The same for an objective whose head is made for other networks of the recipe as well, such as a teacher."""
        return self.head(network)


class Continuation:
    """How a network continues a stream by a row at a time, from left to right: no row sees those after it.

    A subclass defines the prompt, and overrides any method that differs from the default.

    Args:
        stream: the stream that grows.
        end: the token that ends it; None where none does.

    Attributes:
        counted: the fields that count up from row to row.
        asked: the stream of the rows that predict (`asking_rows`); by default the stream that grows.
        behind: whether the objective learns the text behind a text as the builder `text_to_text` lays it, for
            `workbench finetune generate`.
    """

    counted: tuple[str, ...] = ("position_ids", "rank")
    behind: bool = True
    asked: str | None = None

    def __init__(self, stream: str, end: int | None) -> None:
        self.stream = stream
        self.end = end

    def arrange(self, sample: Sample) -> Sample:
        """The sample from which the builder makes the prompt."""
        return sample

    def prompt(self, sequence: Sequence) -> None:
        """Turn a sequence of the task's builder into a prompt: its stream `stream` ends with the row that predicts the
        first token."""
        raise NotImplementedError(f"{type(self).__name__} must define prompt")

    def next_rows(self, last: dict[str, Tensor], tokens: Tensor) -> dict[str, Tensor]:
        """Integer fields of each sequence's last row -> those of the row after it, each [sequences].

        The row holds `tokens`; the fields in `counted` count up, the others stay.
        """
        counted = {name: last[name] + 1 for name in self.counted if name in last}
        return {**last, **counted, "input_ids": tokens}

    def asking_rows(self, last: dict[str, Tensor]) -> dict[str, Tensor] | None:
        """The rows that predict the next tokens, where the last ones do not: one behind each sequence's last row (a
        mask in the next token's place), which is read and not kept. None: the last rows predict.

        Args:
            last: integer fields of each sequence's last row, each [sequences]; the returned fields have this shape too.
        """
        return None

    def logits(self, head: Any, network: Network, rows: Tensor) -> Tensor:
        """The head's logits of the next token [rows, vocab_size], from the states of the rows that predict it."""
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
COUNT = Returns("the number of labels that the loss sums over, a finite number, 0 or more", _is_count, always=True)
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
    """Options of soft targets: labels mixed with the predictions of a moving average of the network (momentum
    distillation, ALBEF, arXiv:2107.07651, section 3.3).

        L = - sum over rows i and classes c of [ (1 - a) y_ic + a q_ic ] log p_ic

    y are the labels, p = softmax(logits) and q = softmax of the follower's logits, through which no gradient goes.

    Attributes:
        follower: the network that follows the objective's own.
        share: a, of the follower's distribution in the targets.
        ramp: the share of the run in which a rises from 0 to `share`, linearly.
    """

    follower: Word
    share: Share
    ramp: Share = 0.0

    def share_at(self, progress: float) -> float:
        """a, at this progress of the run (0 to 1)."""
        return self.share if progress >= self.ramp else self.share * progress / self.ramp


def soft_cross_entropy(logits: Tensor, labels: Tensor, follower_logits: Tensor, share: float | Tensor) -> Tensor:
    """The sum L in float32.

    Args:
        logits: [rows, classes]; -inf for classes that are no candidates.
        labels: [rows].
        follower_logits: the follower's logits [rows, classes], -inf where `logits` are.
        share: a, one for all or of each row [rows].
    """
    log_p = F.log_softmax(logits.float(), -1)
    hard = F.nll_loss(log_p, labels, reduction="none")
    q = follower_logits.detach().float().softmax(-1)
    soft = -(q * log_p.masked_fill(log_p == float("-inf"), 0.0)).sum(-1)
    return ((1 - share) * hard + share * soft).sum()

"""What an objective is: both halves of a pretraining signal in one file.

The half in the loader's workers: `arrange` acts on samples before the sequence builder, `corrupt` on sequences
after it. It may hold read-only resources, never weights. The half on the device: the module that `head` makes,
which turns streams into a sum and metrics. The trainer divides by the count over all micro-batches and ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from torch import Tensor, nn

from workbench.keyed import Draws
from workbench.parts.building import defaults_of, named_by
from workbench.sequences.batch import Batch
from workbench.sequences.protocols import Policy
from workbench.sequences.sequence import Sample, Sequence
from workbench.tasks.continuation import Continuation
from workbench.tasks.forward import Seen

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder

BatchTargets = dict[str, np.ndarray]


class LossOutput(NamedTuple):
    """`loss` is a sum over labels (scalar, float32); `metrics` are name -> (sum, count), numbers or 0-d tensors.

    `made` is handed on to the heads that come `after` this one, and what of it `Head.keeps` names to `after_step`.
    """

    loss: Tensor
    metrics: dict[str, tuple[Tensor | float, Tensor | float]]
    made: dict[str, Tensor] = {}  # noqa: RUF012 - never changed


class Head(nn.Module):
    """An objective's module. A head may read a network's weights (tied decoders) but does not own them.

    Attributes:
        reads_hidden: whether the reads of its micro-batches keep the states of every layer.
        reads_attention: of which layers they keep the attention weights, by their numbers in the stack; True: of all
            (`workbench.tasks.forward.Read`).
        keeps: what of `LossOutput.made` is gathered over the micro-batches and ranks of a step for `after_step`.
        by_token: its parameters that have a row for each token of the vocabulary.
        by_class: those that have a row for each of `Objective.class_names`; another run takes them over by name.
    """

    reads_hidden: bool = False
    reads_attention: bool | frozenset[int] = False
    keeps: tuple[str, ...] = ()
    by_token: tuple[str, ...] = ()
    by_class: tuple[str, ...] = ()

    def forward(self, seen: Seen) -> LossOutput:
        """The loss of one micro-batch. `seen.states[stream]` is [rows, hidden_size]."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def averaged(self) -> nn.Module | None:
        """What of this head follows it where its network has a follower: the head finds the moving average of this
        module in `Seen.averaged`."""
        return None


class StepHead(Head):
    """The head of a step-wide objective: its loss looks at the samples of the whole step.

    `embed` gives tensors of one micro-batch, with a row for each of what is compared: sequences, or the mentions in
    them. The trainer gathers them over micro-batches and ranks, in lane order, and calls `loss` for each micro-batch:
    with the tensors of the whole step, and where its own rows are among them. The sum of what these calls give is the
    step's loss; it is divided by the global count. So no rank does the work of another, and no more than the terms of
    one micro-batch is in memory at once. What is embedded is also what such a head has `made`, for the heads behind it,
    for `keeps` and for `measured`.
    """

    def embed(self, seen: Seen) -> dict[str, Tensor]:
        """Tensors of equally many rows (of none, where nothing in the micro-batch is to be compared), by name: for
        every micro-batch the same names."""
        raise NotImplementedError(f"{type(self).__name__} must define embed")

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        """The terms of the rows `own` (`embedded[name][own]`) among all those of the step."""
        raise NotImplementedError(f"{type(self).__name__} must define loss")

    def forward(self, seen: Seen) -> LossOutput:
        embedded = self.embed(seen)
        return self.loss(embedded, slice(0, rows_of(embedded)))._replace(made=embedded)


def rows_of(embedded: Mapping[str, Tensor]) -> int:
    """How many rows a head has embedded: as many in each tensor."""
    return len(next(iter(embedded.values())))


class Objective:
    """The worker half. A subclass overrides the hooks it needs; `name` is set from the recipe.

    `step_wide` says that `head` returns a `StepHead`; `after` names objectives of the task whose heads run first;
    `reads` the fields of samples that its labels are made of: where no corpus has one, a run does not begin; nor does
    one whose objective `splits` texts in two, where no text of the corpora has two sentences;
    `reads_spans` says that it reads linked entities: where no corpus has any, a run does not begin either;
    `policy` chooses what it hides: what that `reads`, some corpus must have too;
    `prepared_by` is the command that makes its corpora, where what these hold doesn't say it, and `unlabelled` says why
    it may have found nothing to learn; both are for messages;
    `makes` names the options that name streams which `corrupt` makes: no builder brings these, and fine-tuning with
    another objective leaves them empty;
    `measured` what of the head's `LossOutput.made` is gathered in a held-out pass, for `measure`; `told` what an
    evaluation gathers beside, for its items, where the head makes it; `predicts` what its `labels` are, for whoever
    looks at them: `tokens` of the run's tokenizer, or `numbers` with a meaning of their own;
    `own_tokens` the ids of tokens that the objective has and the tokenizer need not have, with how people read them.
    """

    name: str = ""
    step_wide: bool = False
    after: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    splits: bool = False
    reads_spans: bool = False
    policy: Policy | None = None
    prepared_by: str = ""
    unlabelled: str = "does its data fit it?"
    makes: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    predicts: Literal["tokens", "numbers"] = "numbers"

    @classmethod
    def goes_by_words(cls, options: Mapping[str, Any]) -> str | None:
        """What of an objective with these options goes by `word_ids`, for messages; None where nothing does."""
        policy, fate = options.get("policy"), options.get("replace")
        if policy is not None:
            part, chosen, place = named_by("policy", policy, "")
            if part.goes_by_words(**{**defaults_of(part), **chosen}):
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
        """How its network goes on with a sequence (`workbench generate`); None where it predicts no next tokens.

        Args:
            builder: of the task, in evaluation mode; it makes the prompts.
        """
        return None

    def head(self, network: Network) -> Head:
        """The module with the loss, for this network's sizes."""
        raise NotImplementedError(f"{type(self).__name__} must define head")

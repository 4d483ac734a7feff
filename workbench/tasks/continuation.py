"""How a network goes on with a sequence: what an objective says of it for `workbench generate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from workbench.sequences.sequence import Sample, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


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
        """Make of a sequence, as the task's builder gives it, one to go on with: its stream `stream` ends with the row
        that predicts the first token."""
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

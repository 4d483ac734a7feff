"""The base of objectives whose decoder generates a stream of its own (T5, MASS, BART).

    text     the encoder's input: the text with noise
    target   the decoder's input: a first token, then the tokens to be predicted, shifted by one row

    L = - sum over tokens i of log p(y_i | y_1..y_{i-1}, text)

A sequence that already has a target, from a builder of pairs (`text_to_text`), gets no noise: that target is predicted.
So the pretraining objective, with its first token and its head, learns translations and summaries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives._token_head import PLAIN, HeadOptions, TokenHead
from workbench.pretraining.objective import BatchTargets, Continuation, Head, Objective
from workbench.sequences.sequence import Rows, Sequence, text_fields
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder


class DecoderTarget(NamedTuple):
    """The target of a decoder: token ids [tokens]; the first is at `position`."""

    ids: np.ndarray
    position: int = 0


class DecoderObjective(Objective):
    """A decoder's stream is predicted, token by token. A subclass defines the noise of a text (`noise`).

    Args:
        stream: the encoder's stream.
        target: the decoder's stream.
        start: the role of the token that the decoder reads first; `eos` ends its output.
        head: the options of the head.
    """

    predicts = "tokens"
    makes = ("target",)

    def __init__(self, tokenizer: Tokenizer, stream: str, target: str, start: str, head: HeadOptions = PLAIN) -> None:
        self.stream, self.target, self.head_options = stream, target, head
        self.start, self.end = tokenizer.id(start), tokenizer.id("eos")

    def noise(self, sequence: Sequence, rng: np.random.Generator) -> DecoderTarget:
        """Add noise to the encoder's stream, in place; returns the decoder's target."""
        raise NotImplementedError(f"{type(self).__name__} must define noise")

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            if self.target in sequence.streams:
                written = DecoderTarget(sequence.streams[self.target]["input_ids"])
            else:
                if "doc" in sequence.fields(self.stream):
                    raise WorkbenchError(
                        f"sequence {sequence.key!r} is packed from several documents, which one target would mix; use "
                        "the builder document"
                    )
                written = self.noise(sequence, draws.of(sequence.draw))
            sequence.streams[self.target] = decoder_fields(self.start, written)
            rows = Rows(self.target, np.arange(len(written.ids)))
            sequence.targets[self.name] = {"rows": rows, "labels": written.ids.copy()}
        return {}

    def continuation(self, builder: Builder) -> Continuation:
        return DecoderContinuation(self.target, self.start, self.end)

    def head(self, network: Network) -> Head:
        return TokenHead(network, self.target, self.head_options)


class DecoderContinuation(Continuation):
    """The decoder's stream begins with one token; the text is read unchanged."""

    def __init__(self, stream: str, start: int, end: int) -> None:
        super().__init__(stream, end)
        self.start = start

    def prompt(self, sequence: Sequence) -> None:
        sequence.streams[self.stream] = decoder_fields(self.start, DecoderTarget(np.zeros(0, np.int64)))


def decoder_fields(start: int, written: DecoderTarget) -> dict[str, Any]:
    """The rows of a decoder's stream, read from left to right; no later objective labels them."""
    fields = text_fields(np.concatenate([[start], written.ids[:-1]]))
    rank = fields["position_ids"]
    taken = np.ones(len(rank), np.bool_)
    return {**fields, "position_ids": rank + written.position, "rank": rank, "taken": taken}

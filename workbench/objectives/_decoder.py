"""The base of objectives whose decoder generates a stream of its own (T5, MASS, BART).

    text     the encoder's input: the text with noise
    target   the decoder's input: a first token, then the tokens to be predicted, shifted by one row

    L = - sum over tokens i of log p(y_i | y_1..y_{i-1}, text)

A sequence that already has a target, from a builder of pairs (`text_to_text`), gets no noise: that target is predicted.
So the pretraining objective, with its first token and its head, learns translations and summaries.
"""

from __future__ import annotations

from collections.abc import Sequence as Listing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives._token_head import PLAIN, HeadOptions, TokenHead
from workbench.pretraining.objective import BatchTargets, Continuation, Head, Objective
from workbench.sequences.selection import ranges
from workbench.sequences.sequence import Fields, Rows, Sequence, text_fields
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
    makes: tuple[str, ...] = ("target",)

    def __init__(self, tokenizer: Tokenizer, stream: str, target: str, start: str, head: HeadOptions = PLAIN) -> None:
        if stream == target:
            raise WorkbenchError(f"stream and target are both {stream!r}; the decoder's stream is another one")
        self.stream, self.target, self.head_options = stream, target, head
        self.start, self.end = tokenizer.id(start), tokenizer.id("eos")

    def noise(self, sequence: Sequence, rng: np.random.Generator) -> DecoderTarget:
        """Add noise to the encoder's stream, in place; returns the decoder's target."""
        raise NotImplementedError(f"{type(self).__name__} must define noise")

    def noise_all(self, sequences: list[Sequence], draws: Draws) -> list[DecoderTarget]:
        """`noise` of each sequence."""
        return [self.noise(sequence, draws.of(sequence.draw)) for sequence in sequences]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        unpaired = [sequence for sequence in sequences if self.target not in sequence.streams]
        for sequence in unpaired:
            if "doc" in sequence.fields(self.stream):
                raise WorkbenchError(
                    f"sequence {sequence.key!r} is packed from several documents, which one target would mix; use "
                    "the builder document"
                )
        noised = iter(self.noise_all(unpaired, draws))
        paired = [sequence.streams.get(self.target) for sequence in sequences]
        written = [next(noised) if stream is None else DecoderTarget(stream["input_ids"]) for stream in paired]
        streams = decoder_streams(self.start, written)
        for sequence, target, stream in zip(sequences, written, streams, strict=True):
            sequence.streams[self.target] = stream
            rows = Rows(self.target, np.arange(len(target.ids)))
            sequence.targets[self.name] = {"rows": rows, "labels": target.ids.copy()}
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
        [sequence.streams[self.stream]] = decoder_streams(self.start, [DecoderTarget(np.zeros(0, np.int64))])


def decoder_streams(start: int, written: Listing[DecoderTarget]) -> list[Fields]:
    """The rows of each decoder's stream, read from left to right; no later objective labels them."""
    sizes = np.array([max(len(target.ids), 1) for target in written], np.int64)
    begins = np.cumsum(sizes) - sizes
    ids = np.full(sizes.sum(), start, np.int64)
    ids[ranges(begins + 1, sizes - 1)] = np.concatenate([ids[:0], *(target.ids[:-1] for target in written)])
    rank = ranges(np.zeros_like(sizes), sizes)
    fields = text_fields(ids, word_ids=rank)
    fields |= {"position_ids": rank + np.repeat([target.position for target in written], sizes), "rank": rank}
    fields["taken"][:] = True
    bounds = zip(begins.tolist(), (begins + sizes).tolist(), strict=True)
    return [{name: values[begin:end] for name, values in fields.items()} for begin, end in bounds]

"""A network that reads prompts once, then a token at a time, with what it has read before in a past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from workbench.errors import WorkbenchError
from workbench.generation.growing import at_ends, grown, last_rows
from workbench.models.context import Context
from workbench.models.network import Network
from workbench.models.past import Past
from workbench.sequences.batch import Batch, Stream
from workbench.tasks.continuation import Continuation
from workbench.tasks.objective import Head


class Decoder:
    """Says what may come next.

    Args:
        network, head: in evaluation mode.
        batch: the prompts, jagged; one may be there several times later, or not any more.
    """

    def __init__(self, network: Network, head: Head, continuation: Continuation, batch: Batch) -> None:
        self.network, self.head, self.continuation = network, head, continuation
        self.batch = batch
        self._past = Past("keys")
        self._prompts = list(range(batch.size))
        self._last: dict[str, Tensor] = {}

    def begin(self) -> Tensor:
        """Logits of the first token of each prompt [prompts, vocab_size]."""
        return self._read(self.batch)

    def step(self, tokens: Sequence[int], origins: Sequence[int]) -> Tensor:
        """Logits of the token after these ones [tokens, vocab_size].

        Args:
            origins: for each token, the row of the logits before that it was chosen from.
        """
        device = self.batch.streams[self.continuation.stream].offsets.device
        last = self._last
        if list(origins) != list(range(len(self._prompts))):
            chosen = torch.tensor(origins, device=device)
            last = {name: values[chosen] for name, values in last.items()}
            self._choose(origins)
        fields = self.continuation.next_rows(last, torch.tensor(tokens, device=device))
        stream = Stream(fields, torch.arange(len(tokens) + 1, device=device), [1] * len(tokens))
        return self._read(Batch({self.continuation.stream: stream}))

    def _choose(self, origins: Sequence[int]) -> None:
        """Let the pasts be those of these rows. What stays of a prompt (an encoder's states) is the same for all of its
        texts, and is moved only where there are other prompts now, or not as many texts of one."""
        prompts = [self._prompts[origin] for origin in origins]
        still = self._past.streams.keys() - {self.continuation.stream} if prompts == self._prompts else ()
        self._past = self._past.pick(origins, still)
        self._prompts = prompts

    def _read(self, batch: Batch) -> Tensor:
        name = self.continuation.stream
        context = Context(batch, past=self._past)
        stream = context.batch.streams[name]
        self._last = last_rows(stream)
        asking = self.continuation.asking_rows(self._last)
        if asking is not None:
            batch = grown(replace(batch, streams={**batch.streams, name: stream}), name, asking)
            context = Context(batch, past=self._past)
        states = self.network(batch, context)[name]
        self._past = context.past_now if asking is None else context.past_now.without_last(name)
        ends = at_ends(context.batch.streams[name], states)
        logits = self.continuation.logits(self.head, self.network, ends).float()
        if logits.amax().isnan():
            raise WorkbenchError("the network gives logits that are no numbers; its weights are broken: train it again")
        return logits

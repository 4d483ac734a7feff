"""A network that reads prompts once, then a token at a time, with the rows read before in a KV cache.

Also: adding a row to every sequence of a batch, and the check that a network reads a text row by row as it reads it at
once, on which a decoder relies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.layout import interleave
from workbench.models.network import Network
from workbench.pretraining.objective import Continuation, Head
from workbench.sequences.batch import Batch, Stream


class Decoder:
    """Computes the logits of the next tokens.

    Args:
        network, head: in evaluation mode.
        batch: the prompts, jagged; later a prompt may occur several times, or not any more.
    """

    def __init__(self, network: Network, head: Head, continuation: Continuation, batch: Batch) -> None:
        self.network, self.head, self.continuation = network, head, continuation
        self.batch = batch
        self._cache = KVCache("keys")
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
        """Select the caches of these rows. A prompt's constant states (an encoder's) are the same for all of its texts.
        They are moved only where the prompts change, or the number of texts of one."""
        prompts = [self._prompts[origin] for origin in origins]
        still = self._cache.streams.keys() - {self.continuation.stream} if prompts == self._prompts else ()
        self._cache = self._cache.pick(origins, still)
        self._prompts = prompts

    def _read(self, batch: Batch) -> Tensor:
        name = self.continuation.stream
        context = Context(batch, cache=self._cache)
        stream = context.batch.streams[name]
        self._last = last_rows(stream)
        asking = self.continuation.asking_rows(self._last)
        if asking is not None:
            batch = replace(batch, streams={**batch.streams, name: stream})
            name = self.continuation.asked or name
            batch = grown(batch, name, asking)
            context = Context(batch, cache=self._cache)
        states = self.network(batch, context)[name]
        self._cache = context.updated_cache if asking is None else context.updated_cache.without_last(name)
        ends = at_ends(context.batch.streams[name], states)
        logits = self.continuation.logits(self.head, self.network, ends).float()
        if logits.amax().isnan():
            raise WorkbenchError("the network returns logits that are NaN; its weights are broken: train it again")
        return logits


def last_rows(stream: Stream) -> dict[str, Tensor]:
    """The integer fields of each sequence's last row, each [sequences]."""
    own = {name: values for name, values in stream.fields.items() if values.shape == (stream.rows,)}
    return {name: at_ends(stream, values) for name, values in own.items()}


def at_ends(stream: Stream, values: Tensor) -> Tensor:
    """The values of each sequence's last row [sequences, ...], from values of all rows."""
    if all(length == 1 for length in stream.lengths):
        return values
    return values[stream.offsets[1:] - 1]


def grown(batch: Batch, name: str, rows: dict[str, Tensor]) -> Batch:
    """The batch with one more row, of the fields `rows`, each [sequences], at the end of each sequence of a stream,
    which it may lack."""
    count, device = batch.size, next(iter(rows.values())).device
    more = Stream(rows, torch.arange(count + 1, device=device), [1] * count)
    if name not in batch.streams:
        return replace(batch, streams={**batch.streams, name: more})
    stream = batch.streams[name]
    order = interleave([stream, more]).to(stream.offsets.device)
    streams = {other: _following(found, name, order) for other, found in batch.streams.items()}
    fields = {field: torch.cat([streams[name].fields[field], values])[order] for field, values in rows.items()}
    lengths = [length + 1 for length in stream.lengths]
    streams[name] = replace(stream, fields=fields, offsets=stream.offsets + more.offsets, lengths=lengths)
    return replace(batch, streams=streams, targets={}, links={})


def _following(stream: Stream, name: str, order: Tensor) -> Stream:
    """A stream whose links name the same rows of another one as before, after these were reordered."""
    links = {field for field, other in stream.links.items() if other == name}
    places = torch.argsort(order) if links else order
    moved = {field: torch.where(stream.fields[field] < 0, -1, places[stream.fields[field]]) for field in links}
    return replace(stream, fields={**stream.fields, **moved}) if links else stream


RELATIVE = 1e-3


def check_cache(network: Network, head: Head, continuation: Continuation, prompt: Batch) -> None:
    """Compare the second token's logits after one prompt, read with a KV cache and read at once.

    Raises:
        WorkbenchError: they differ.
    """
    decoder = Decoder(network, head, continuation, prompt)
    token = int(decoder.begin().argmax())
    found = decoder.step([token], [0])
    name = continuation.stream
    last = last_rows(prompt.streams[name])
    row = continuation.next_rows(last, torch.tensor([token], device=prompt.streams[name].offsets.device))
    expected = Decoder(network, head, continuation, grown(prompt, name, row)).begin()
    dtype = network.computes_in or next(network.parameters()).dtype
    allowed = max(RELATIVE, 16 * torch.finfo(dtype).eps)
    difference, size = float((found - expected).norm()), float(expected.norm())
    if difference > allowed * size:
        raise WorkbenchError(
            "this network predicts another next token when it reads the text a token at a time than when it "
            f"reads it at once (logits that differ by {difference / size:.2g} of their size): a layer of it mixes rows "
            "by other means than attention and has no cache. Let it attend through "
            "workbench.models.blocks.AttentionBlock, or read the earlier rows from Context.recall, as "
            "docs/extending/layer-cache.md shows"
        )

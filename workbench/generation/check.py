"""Whether a network reads a text row by row as it reads it at once: what a decoder takes for granted."""

from __future__ import annotations

from dataclasses import replace

import torch

from workbench.errors import WorkbenchError
from workbench.generation.decoder import Decoder
from workbench.models.network import Network
from workbench.sequences.batch import Batch
from workbench.tasks.continuation import Continuation
from workbench.tasks.objective import Head

RELATIVE = 1e-3


def check_past(network: Network, head: Head, continuation: Continuation, prompt: Batch) -> None:
    """Compare what comes second after one prompt, read with a past and read anew.

    Raises:
        WorkbenchError: it isn't the same.
    """
    decoder = Decoder(network, head, continuation, prompt)
    token = int(decoder.begin().argmax())
    found = decoder.step([token], [0])
    expected = Decoder(network, head, continuation, _grown(prompt, continuation, token)).begin()
    allowed = max(RELATIVE, 16 * torch.finfo(next(network.parameters()).dtype).eps)
    difference, size = float((found - expected).norm()), float(expected.norm())
    if difference > allowed * size:
        raise WorkbenchError(
            "this network says something else of a next token when it reads the text a token at a time than when it "
            f"reads it at once (logits that differ by {difference / size:.2g} of their size): a layer of it mixes rows "
            "by other means than attention and has no past. Let it attend through "
            "workbench.models.sublayers.AttentionBlock, or take the rows before from Context.recall, as "
            "CONTRIBUTING.md, 'A layer', shows"
        )


def _grown(prompt: Batch, continuation: Continuation, token: int) -> Batch:
    """The prompt with the row of a token at its end."""
    stream = prompt.streams[continuation.stream]
    last = {name: values[-1:] for name, values in stream.fields.items() if values.shape == (stream.rows,)}
    row = continuation.next_rows(last, torch.tensor([token], device=stream.offsets.device))
    fields = {name: torch.cat([values, row[name]]) for name, values in stream.fields.items() if name in row}
    offsets = stream.offsets + torch.arange(2, device=stream.offsets.device)
    grown = replace(stream, fields=fields, offsets=offsets, lengths=[stream.rows + 1])
    return replace(prompt, streams={**prompt.streams, continuation.stream: grown}, targets={}, links={})

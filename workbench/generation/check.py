"""Whether a network reads a text row by row as it reads it at once: what a decoder takes for granted."""

from __future__ import annotations

import torch

from workbench.errors import WorkbenchError
from workbench.generation.decoder import Decoder
from workbench.generation.growing import grown, last_rows
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
    name = continuation.stream
    last = last_rows(prompt.streams[name])
    row = continuation.next_rows(last, torch.tensor([token], device=prompt.streams[name].offsets.device))
    expected = Decoder(network, head, continuation, grown(prompt, name, row)).begin()
    dtype = network.computes_in or next(network.parameters()).dtype
    allowed = max(RELATIVE, 16 * torch.finfo(dtype).eps)
    difference, size = float((found - expected).norm()), float(expected.norm())
    if difference > allowed * size:
        raise WorkbenchError(
            "this network says something else of a next token when it reads the text a token at a time than when it "
            f"reads it at once (logits that differ by {difference / size:.2g} of their size): a layer of it mixes rows "
            "by other means than attention and has no past. Let it attend through "
            "workbench.models.sublayers.AttentionBlock, or take the rows before from Context.recall, as "
            "docs/extending/layer-cache.md shows"
        )

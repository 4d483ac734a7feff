"""The peers of the text steps: the vocabulary at labelled positions alone changes no loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipelines.gpu import text_peers
from pipelines.gpu.text_peers import IGNORED, PEERS, ElectraPeer, loss_of

WITH_HEADS = sorted({peer.model: name for name, peer in PEERS.items() if peer.head}.values())


@pytest.mark.parametrize("system", WITH_HEADS)
def test_labelled_positions_alone_have_the_same_loss(system: str) -> None:
    peer = PEERS[system]
    sizes = {name: {text_peers.HIDDEN: 16, text_peers.INNER: 16}.get(size, size) for name, size in peer.options.items()}
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 40, (2, 7), generator=draws)
    labels = torch.where(torch.rand(2, 7, generator=draws) < 0.4, ids, IGNORED)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    if "translated" in str(peer.inputs):
        inputs["decoder_input_ids"] = ids
    if peer.model.endswith("ForPreTraining"):
        inputs["sentence_order_label" if peer.model.startswith("Albert") else "next_sentence_label"] = torch.tensor(
            [0, 1]
        )
    model = replace(peer, options=sizes | {"num_hidden_layers": 1} if "num_hidden_layers" in sizes else sizes).made(40)
    losses = []
    for head in ("", peer.head):
        torch.manual_seed(0)
        losses.append(loss_of(model.eval(), inputs, head).detach())
    torch.testing.assert_close(*losses)
    assert isinstance(model, ElectraPeer) == (system == "electra")

"""CPT: the decoder of texts reads the shared encoder, and nothing of the decoder for understanding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.models.networks import build_networks
from workbench.recipe.reading import load_recipe
from workbench.sequences.batch import Batch, Stream

WORDS = 50


def stream(length: int, rank: Tensor | None = None) -> Stream:
    fields = {"input_ids": torch.arange(length) + 5, "position_ids": torch.arange(length)}
    return Stream(fields if rank is None else {**fields, "rank": rank}, torch.tensor([0, length]), [length])


@torch.no_grad()
def test_the_two_decoders_share_the_encoder_alone() -> None:
    torch.manual_seed(0)
    network = build_networks(load_recipe("cpt-tiny", ["model.init_range=0.2"]), vocab_size=WORDS)["main"].eval()
    kinds = [type(layer).__name__ for layer in network.layers]
    assert kinds == ["SelfLayer", "SelfLayer", "CrossLayer", "SelfLayer"]
    batch = Batch({"text": stream(7), "target": stream(4, torch.arange(4))})
    before = network(batch)
    alone = network(Batch({"text": stream(7)}))
    torch.testing.assert_close(alone["text"], before["text"])

    def differs(layer: nn.Module) -> list[bool]:
        kept = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter))
        after = network(batch)
        layer.load_state_dict(kept)
        return [bool((after[name] - before[name]).abs().max() > 1e-3) for name in ("text", "target")]

    encoder, _, written, understood = network.layers
    assert differs(encoder) == [True, True]
    assert differs(written) == [False, True]
    assert differs(understood) == [True, False]

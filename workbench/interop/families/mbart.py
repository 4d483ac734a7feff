"""Hugging Face mBART (Liu et al., arXiv:2001.08210): BART with norms before the sublayers, and one behind each stack.

The tokens of languages, with which its texts begin or end, are left to the text: a tokenizer that has `[fr]` reads it
as one token.
"""

from __future__ import annotations

from workbench.interop.bert_names import both
from workbench.interop.families.bart import EPS, STACKS, Bart
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import Rule
from workbench.recipe.spec import NetworkSpec


class Mbart(Bart):
    """Hugging Face mBART: a `text` and a `target` stream, pre-norm `self` and `cross` layers; head denoising."""

    library = "MBart"
    between = 1

    def network(self, config: FamilyConfig) -> NetworkSpec:
        network = super().network(config)
        encoder, decoder = ({**layer, "norm_place": "pre"} for layer in network.layers)
        ends = [{"layer": "norm", "stream": stream, "norm_eps": EPS} for stream in STACKS.values()]
        network.layers = [encoder, ends[0], {**decoder, "key_norm": False}, ends[1]]
        return network

    def rules(self, config: FamilyConfig) -> list[Rule]:
        first = config["encoder_layers"]
        ends = {"encoder": first, "decoder": first + 1 + config["decoder_layers"]}
        norms = [rule for stack, at in ends.items() for rule in both(f"model.{stack}.layer_norm", f"layers.{at}.norm")]
        return [*super().rules(config), *norms]

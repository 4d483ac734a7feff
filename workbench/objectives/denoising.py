"""Denoising (BART, Lewis et al., arXiv:1910.13461, section 2): a text is damaged, and a decoder generates all of it.

    text     [CLS] and _ . the old _ harbours [SEP]
    target   [SEP] [CLS] the old river flows past harbours . and bridges . [SEP]

As in the published code, the decoder begins with the token that ends texts, and generates the special tokens too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen

from workbench.components.building import build, named_by
from workbench.components.calls import call
from workbench.core.options.bounds import ComponentSpec, Word
from workbench.objectives._decoder import DecoderObjective, DecoderTarget
from workbench.objectives._token_head import PLAIN, HeadOptions
from workbench.sequences.protocols import names_words
from workbench.sequences.rows import recount
from workbench.sequences.sequence import Sequence
from workbench.sequences.sequence_checks import noised_rows
from workbench.text.tokenizer import Tokenizer

PAPER = [{"noise": "permute", "rate": 1.0}, {"noise": "infill", "rate": 0.3}]
"""The noises of the paper's large model."""


class Denoising(DecoderObjective):
    """Denoising autoencoder (BART, Lewis et al., arXiv:1910.13461, section 2). The encoder reads a damaged text, and
    the decoder writes the original text.

    Args:
        noises: components of the kind `noise`, each with its options, in the order in which they act on a text; by
            default those of the paper's large model: all sentences permuted, and 30 % of the tokens in spans.
        stream: the encoder's stream.
        target: the decoder's stream.
        head: {tied, bias, transform} of the head, where a pretrained model has more than the table.

    Raises:
        WorkbenchError: the tokenizer has no `eos` token, or none that a noise needs.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        noises: Annotated[list[ComponentSpec], MinLen(1)] | None = None,
        stream: Word = "text",
        target: Word = "target",
        head: HeadOptions = PLAIN,
    ) -> None:
        super().__init__(tokenizer, stream, target, start="eos", head=head)
        self.noises = [build("noise", noise, f"noises[{i}]") for i, noise in enumerate(noises or PAPER)]
        self.left = noised_rows(tokenizer.vocab_size)

    @classmethod
    def goes_by_words(cls, options: Mapping[str, Any]) -> str | None:
        """The first of its noises that does."""
        named = [named_by("noise", noise, "") for noise in options.get("noises") or PAPER]
        return next((place for part, _, place in named if names_words(part)), None)

    def noise(self, sequence: Sequence, rng: np.random.Generator) -> DecoderTarget:
        ids = sequence.fields(self.stream)["input_ids"].copy()
        for noise in self.noises:
            call(noise, "", self.left, sequence, self.stream, rng)
        recount(sequence, self.stream)
        return DecoderTarget(ids)

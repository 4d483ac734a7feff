"""Classification by the word that fills a place of a pattern (PET, Schick and Schuetze, arXiv:2001.07676, section 3.1).

With h the state of the masked place, E t(h) + b the scores of a masked language model, and v(c) the word of class c,

    z_c = E[v(c)] . t(h) + b[v(c)]
    L = -log softmax(z)[y], summed over the sequences that have a label
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Name, Word
from workbench.objectives._token_head import BERT, BertHeadOptions, TokenHead
from workbench.objectives.classify import Classify, class_output
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput
from workbench.sequences.sequence import Rows, Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network


class Cloze(Classify):
    """Classification by the word that a masked language model expects in a pattern (PET, Schick and Schuetze,
    arXiv:2001.07676, section 3.1), for sequences of the builder `cloze`. The sample's `labels` name the class.

    Its head is that of `mlm`, and can start from it. An objective `mlm` behind it, with a small weight, is the paper's
    auxiliary loss (section 3.3).

    Args:
        words: the word of each class, one token of the vocabulary; no two classes have the same.
        label: the name of the sample's label; a sequence without it is not counted. Null: an evaluation takes the only
            label of its corpus.
        stream: the stream of the text.
        head: {tied, bias, transform} of the head, as of `mlm`.

    Raises:
        WorkbenchError: a word is not one token, or two classes have the same.
    """

    measured = ("predicted", "gold")

    def __init__(
        self,
        tokenizer: Tokenizer,
        words: dict[Name, Name],
        label: Name | None = "label",
        stream: Word = "text",
        head: BertHeadOptions = BERT,
    ) -> None:
        super().__init__(list(words), label, stream, dropout=0.0)
        self.mask_id = tokenizer.id("mask")
        self.ids = [_token(tokenizer, name, word) for name, word in words.items()]
        if len({*self.ids}) < len(self.ids):
            raise WorkbenchError(
                f"words: {', '.join(f'{name}={word}' for name, word in words.items())}; two classes have the same "
                "token, allowed: another word for each"
            )
        self.head_options = head

    @classmethod
    def class_names(cls, options: Mapping[str, Any]) -> list[str] | None:
        return list(options["words"]) if "words" in options else None

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Masks the place of the pattern, and writes the targets `labels` [1] and `rows` [1] of every sequence.

        Raises:
            WorkbenchError: a sequence does not have one place of one token.
        """
        super().corrupt(sequences, draws)
        for sequence in sequences:
            places = [np.arange(s.start, s.end) for s in sequence.mask_spans if s.stream == self.stream]
            if [len(rows) for rows in places] != [1]:
                raise WorkbenchError(
                    f"objective {self.name!r} masks one token of a pattern, and the sequence {sequence.key!r} has "
                    f"{len(places)} marked places of {sum(map(len, places))} tokens; use the builder `cloze`"
                )
            fields = sequence.fields(self.stream)
            ids, taken = fields["input_ids"].copy(), fields["taken"].copy()
            ids[places[0]], taken[places[0]] = self.mask_id, True
            sequence.streams[self.stream] = {**fields, "input_ids": ids, "taken": taken}
            sequence.targets[self.name]["rows"] = Rows(self.stream, places[0])
        return {}

    def head(self, network: Network) -> Head:
        return ClozeHead(network, self.stream, self.head_options, self.ids)


class ClozeHead(TokenHead):
    """The prediction head of masked tokens, for the words of the classes alone."""

    def __init__(self, network: Network, stream: str, options: BertHeadOptions, ids: list[int]) -> None:
        super().__init__(network, stream, options)
        self.register_buffer("ids", torch.tensor(ids), persistent=False)
        self.ids: torch.Tensor

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """As that of `classify`."""
        scores = self.logits(inputs.network, inputs.states[self.stream][inputs.targets["rows"]])
        return class_output(scores.index_select(1, self.ids), inputs, self.loss)


def _token(tokenizer: Tokenizer, name: str, word: str) -> int:
    """The token of a word within a text."""
    before = tokenizer.encode("a").ids
    found = tokenizer.encode(f"a {word}")
    ids = found.ids[len(before) :]
    if len(ids) != 1:
        raise WorkbenchError(
            f"words: the word {word!r} of the class {name!r} is {len(ids)} tokens "
            f"({' '.join(tokenizer.tokens(ids))}); allowed: words of one token"
        )
    if tokenizer.has("unk") and ids[0] == tokenizer.id("unk"):
        raise WorkbenchError(
            f"words: the vocabulary has no {word!r}, the word of the class {name!r}; allowed: words of the vocabulary"
        )
    return int(ids[0])

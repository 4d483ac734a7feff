"""Supersense prediction for masked words (SenseBERT, arXiv:1908.05646, section 3.2, equations 4 to 7).

With v the state of a masked word w, S the supersense table of the network's embedding, A(w) the supersenses that the
word may have, and p = softmax(S v),

    L = - log sum over s in A(w) of p(s)  -  1 / |A(w)| sum over s in A(w) of log p(s)

summed over the words that another objective has hidden. A word that is cut into several tokens, or may have no
supersense, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kg.graph.shuffle import FALSE_FACTS
from kg.lexicons.supersense_table import SupersenseTable, read_supersenses
from kg.models.embeddings.sense_token import SenseTokenEmbedding
from kg.objectives._hidden import hidden_tokens
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Location, Name, Seed, Word
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.selection import whole_words
from workbench.sequences.sequence import Rows, Sequence
from workbench.text.tokenizer import Tokenizer


class Supersense(Objective):
    """Supersense prediction (SenseBERT, arXiv:1908.05646, section 3.2): the supersenses of the words that another
    objective masks.

    Args:
        senses: file of `workbench prepare supersenses`, that of the embedding `kg.sense_token`.
        of: the name of the objective that hides words.
        stream: the stream of the tokens.
        control, seed: as for the embedding. Under `no-kg` no word has a supersense, and nothing is predicted.
    """

    controls = ("no-kg", *FALSE_FACTS)
    predicts = "tokens"
    measured = ("predicted", "allowed")

    def __init__(
        self,
        senses: Location | SupersenseTable,
        tokenizer: Tokenizer | None = None,
        of: Word = "mlm",
        stream: Word = "text",
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        if not isinstance(senses, SupersenseTable):
            assert tokenizer is not None
            senses = read_supersenses(senses, tokenizer)
        self.senses, self.stream = senses.under(control, seed), stream
        self.after = (of,)
        self._any = np.asarray(self.senses.allowed.any(1))

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes `rows` and `labels` (the ids of the words) of the hidden words that have supersenses."""
        for sequence in sequences:
            rows, labels = hidden_tokens(sequence, self.after[0])
            kept = whole_words(sequence.fields(self.stream))[rows] & self._any[labels]
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows[kept]), "labels": labels[kept]}
        return {}

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        return sense_scores(made["predicted"], made["allowed"].bool())

    def head(self, network: Network) -> Head:
        return SupersenseHead(network, self.stream)


class SupersenseHead(Head):
    """Scores of supersenses by the table of the network's embedding; it has no parameters of its own."""

    def __init__(self, network: Network, stream: str = "text") -> None:
        super().__init__()
        self.stream = stream
        sense_embedding(network, stream)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metric `accuracy`; made: `predicted` [words] and `allowed` [words, supersenses] (of measuring)."""
        targets, embedding = inputs.targets, sense_embedding(inputs.network, self.stream)
        scores = F.linear(inputs.states[self.stream][targets["rows"]], embedding.senses.weight)
        logp = scores.float().log_softmax(-1)
        allowed = embedding.allowed[targets["labels"]]
        any_of = logp.masked_fill(~allowed, -torch.inf).logsumexp(-1)
        each_of = (logp * allowed).sum(-1) / allowed.sum(-1).clamp_min(1)
        predicted = logp.argmax(-1)
        right = allowed.gather(1, predicted[:, None]).sum()
        made = {"predicted": predicted, "allowed": allowed}
        return LossOutput(-(any_of + each_of).sum(), {"accuracy": (right, len(predicted))}, made)


def sense_embedding(network: Network, stream: str) -> SenseTokenEmbedding:
    """The embedding of a stream that has a table of supersenses.

    Raises:
        WorkbenchError: it has none.
    """
    found = dict(network.embeddings.items()).get(stream)
    if not isinstance(found, SenseTokenEmbedding):
        raise WorkbenchError(
            f"kg.supersense predicts with the supersense table of the stream {stream!r}, which has none: give it "
            "`embedding: kg.sense_token` with the same file of `senses`"
        )
    return found


def sense_scores(predicted: Tensor, allowed: Tensor) -> dict[str, float]:
    """How often a predicted supersense is one that the word may have: of all words, and of those with one alone.

    Args:
        predicted: [words].
        allowed: bool [words, supersenses].
    """
    right = allowed.gather(1, predicted[:, None]).squeeze(1)
    single = allowed.sum(1) == 1
    found = {"allowed_accuracy": float(right.double().mean())}
    return found | ({"single_accuracy": float(right[single].double().mean())} if single.any() else {})

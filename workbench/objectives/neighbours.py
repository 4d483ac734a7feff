"""Words from their neighbours with negative sampling: word2vec (Mikolov et al., arXiv:1301.3781 and arXiv:1310.4546),
and context2vec (Melamud et al., CoNLL 2016).

    L = - sum over pairs (q, o) of [ log sigmoid(q . u_o) + sum over k negatives n of log sigmoid(-q . u_n) ]

By `skip_gram` q is the state of a word, and o each of its neighbours. By `cbow` q is the mean of the states of the
neighbours, and o is the word. u are rows of a table of the head's own. Negatives are drawn by frequency^0.75. Those
that are o are left out, as in the released code. Frequent words are left out before windows are counted (the code's
form of equation 5), and each word's window is drawn from 1 to `window`.

The states should be those of a network whose rows do not see each other; otherwise a state has seen its neighbours.

By `context` (context2vec, equations 1 to 3) q is what two directions have read around a word, and o is the word:

    q = L2(relu(L1([first half of row i - 1 ; second half of row i + 1])))

So the layers must keep the halves apart (`two_way_lstm`), and texts have special tokens at their ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Location, Share, Word
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Fields, Rows, Sequence
from workbench.text.token_counts import read_token_counts
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network

POWER = 0.75
"""Of the frequencies by which negatives are drawn (arXiv:1310.4546, section 2.2)."""

By = Literal["skip_gram", "cbow", "context"]


class Neighbours(Objective):
    """Prediction of words from their neighbours, or the reverse, with negative sampling (word2vec, Mikolov et al.,
    arXiv:1310.4546; context2vec, Melamud et al., CoNLL 2016). Special and unknown tokens, and those that an earlier
    objective labelled, are left out.

    Args:
        tokenizer: given by the recipe.
        counts: file of `workbench prepare token-counts`.
        by: `skip_gram` predicts each neighbour of a word, `cbow` a word from the mean of its neighbours, `context` from
            the whole text around it, which the halves of the rows next to it have read in two directions.
        window: the most words on each side that are neighbours; of `context` there is no window.
        negatives: drawn words for each label.
        subsample: frequency from which words are left out at random; 0 keeps all.
        stream: the stream of the words.
    """

    unlabelled = "has every text two known words?"

    def __init__(
        self,
        tokenizer: Tokenizer,
        counts: Location,
        by: By = "skip_gram",
        window: Count = 5,
        negatives: Count = 5,
        subsample: Share = 1e-3,
        stream: Word = "text",
    ) -> None:
        self.by, self.window, self.negatives, self.stream = by, window, negatives, stream
        found = read_token_counts(counts, tokenizer)
        self.unknown = tokenizer.id("unk") if tokenizer.has("unk") else -1
        found[[number for number in tokenizer.special_ids.tolist() if number < len(found)]] = 0
        self.kept = kept_shares(found, subsample)
        self.reached = np.cumsum(found**POWER)
        self.reached /= self.reached[-1]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            rng, text = draws.of(sequence.draw), sequence.fields(self.stream)
            ids = text["input_ids"]
            rows = np.flatnonzero(~text["special"] & ~text["taken"] & (ids != self.unknown))
            rows = rows[rng.random(len(rows)) < self.kept[ids[rows]]]
            word, neighbour = self._inner(rows, text) if self.by == "context" else self._pairs(rows, text, rng)
            text["taken"][word] = True
            cbow = self.by == "cbow"
            chosen = np.unique(word) if cbow else word
            labels = ids[chosen if cbow else neighbour]
            drawn = np.searchsorted(self.reached, rng.random((len(labels), self.negatives)), "right")
            targets = {"rows": Rows(self.stream, chosen), "labels": labels.copy(), "negatives": drawn}
            if cbow:
                targets |= {"of": Rows(self.stream, word), "neighbours": Rows(self.stream, neighbour)}
            sequence.targets[self.name] = targets
        return {}

    def _inner(self, rows: np.ndarray, text: Fields) -> tuple[np.ndarray, np.ndarray]:
        """The rows between two others of their text, as words and as what is predicted."""
        doc = text.get("doc", np.zeros(len(text["input_ids"]), np.int64))
        rows = rows[(rows > 0) & (rows < len(doc) - 1)]
        rows = rows[(doc[rows - 1] == doc[rows]) & (doc[rows + 1] == doc[rows])]
        return rows, rows

    def _pairs(self, rows: np.ndarray, text: Fields, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the words and of their neighbours, pair by pair."""
        reach = rng.integers(1, self.window, len(rows), endpoint=True)
        apart = np.concatenate([np.arange(-self.window, 0), np.arange(1, self.window + 1)])
        other = np.arange(len(rows))[:, None] + apart
        there = (np.abs(apart) <= reach[:, None]) & (other >= 0) & (other < len(rows))
        word, place = np.nonzero(there)
        pairs = rows[word], rows[other[word, place]]
        if "doc" not in text:
            return pairs
        same = text["doc"][pairs[0]] == text["doc"][pairs[1]]
        return pairs[0][same], pairs[1][same]

    def head(self, network: Network) -> Head:
        """
        Raises:
            WorkbenchError: the network has no such stream, or `context` reads one of an odd width.
        """
        width = self.width(network, self.stream)
        if self.by == "context" and width % 2:
            raise WorkbenchError(f"the width of {self.stream} is {width}; allowed: even ones, a half each direction")
        kind = ContextHead if self.by == "context" else NeighboursHead
        return kind(len(self.kept), width, self.stream)


def kept_shares(counts: np.ndarray, subsample: float) -> np.ndarray:
    """The share of the occurrences of each word that are kept [words]: min(1, sqrt(t / f) + t / f) with the frequency f
    and t = `subsample`."""
    if not subsample:
        return np.ones(len(counts))
    share = subsample * counts.sum() / np.maximum(counts, 1)
    return np.minimum(1.0, np.sqrt(share) + share)


class NeighboursHead(Head):
    """The vectors of the predicted words, and the loss. `accuracy` is the share of labels whose score is above those of
    all their negatives; by chance it is 1 / (1 + negatives)."""

    by_token = ("output.weight",)

    def __init__(self, words: int, hidden_size: int, stream: str) -> None:
        super().__init__()
        self.stream = stream
        self.output = nn.Embedding(words, hidden_size)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        states, targets = inputs.states[self.stream], inputs.targets
        labels, negatives = targets["labels"], targets["negatives"]
        queries = self._queries(states, targets)
        right = (queries * self.output(labels)).sum(-1).float()
        wrong = (self.output(negatives) @ queries[:, :, None]).squeeze(-1).float()
        others = negatives != labels[:, None]
        loss = -F.logsigmoid(right).sum() - (F.logsigmoid(-wrong) * others).sum()
        above = ((right[:, None] > wrong) | ~others).all(1).sum()
        return LossOutput(loss, {"accuracy": (above, labels.numel())})

    def _queries(self, states: Tensor, targets: dict[str, Tensor]) -> Tensor:
        """q of each label [labels, hidden_size]."""
        return _means(states, targets) if "of" in targets else states[targets["rows"]]


class ContextHead(NeighboursHead):
    """The same from the text around a word. Its vectors of words are half as wide as the states (context2vec)."""

    def __init__(self, words: int, hidden_size: int, stream: str) -> None:
        super().__init__(words, hidden_size // 2, stream)
        self.joined = nn.Linear(hidden_size, hidden_size)
        self.projection = nn.Linear(hidden_size, hidden_size // 2)

    def _queries(self, states: Tensor, targets: dict[str, Tensor]) -> Tensor:
        rows, half = targets["rows"], states.shape[1] // 2
        around = torch.cat([states[rows - 1, :half], states[rows + 1, half:]], -1)
        found: Tensor = self.projection(self.joined(around).relu())
        return found


def _means(states: Tensor, targets: dict[str, Tensor]) -> Tensor:
    """The mean of the neighbours' states of each word [words, hidden_size]."""
    sums = states.new_zeros(states.shape).index_add(0, targets["of"], states[targets["neighbours"]])
    counts = states.new_zeros(len(states)).index_add(0, targets["of"], states.new_ones(len(targets["of"])))
    return sums[targets["rows"]] / counts[targets["rows"]].clamp_min(1)[:, None]

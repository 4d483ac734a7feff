"""Changed texts: typing errors, exchanged words, and words in front of all texts that raise a loss.

A universal trigger is a few words that raise the mean loss of all texts (Wallace et al., arXiv:1908.07125, section
2.2). With e_w the row of a word in the token table, and g_i the mean gradient of the loss by the row of the i-th word
of the trigger, the words w of highest <e_w, g_i> are tried (HotFlip, Ebrahimi et al., arXiv:1712.06751, equation 10).
The one of the highest loss stays, word after word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.corpora.schema.places import splice
from workbench.evaluation.analysis.network_task import STREAM, in_words
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample
from workbench.sequences.sequence import Sequence as TokenSequence

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHORTEST = 4
"""Letters of the shortest word that is mistyped."""
TRIED, SWEEPS = 10, 2
"""Words that are tried for each place of a trigger, and how often all places are."""

Change = Callable[[Sample, np.random.Generator, float], Sample]


def mistyped(sample: Sample, rng: np.random.Generator, rate: float) -> Sample:
    """The text with an error in this share of its longer words: two letters exchanged, or one left out, doubled or
    replaced. The first letter and the last stay."""
    (text,), edits = in_words([sample]), list[tuple[int, int, str]]()
    for number, (start, end) in enumerate(text.places.tolist()):
        if end - start < SHORTEST or rng.random() >= rate:
            continue
        word, at = text.word(number), int(rng.integers(1, end - start - 2))
        here, after = word[at], word[at + 1]
        letter = LETTERS[int(rng.integers(len(LETTERS)))]
        edits.append(
            (start + at, start + at + 2, (after + here, after, here + here + after, letter + after)[rng.integers(4)])
        )
    return splice(sample, "text", edits)


def exchanged(sample: Sample, rng: np.random.Generator, rate: float) -> Sample:
    """The text in which about this share of the words has exchanged places with a neighbour.

    A pair is exchanged with probability p if its first word is in none yet. In a long text 2 p / (1 + p) of the words
    are then in a pair, which is the rate at p = rate / (2 - rate)."""
    (text,), edits, done = in_words([sample]), list[tuple[int, int, str]](), 0
    for number, ((start, end), (begin, last)) in enumerate(pairwise(text.places.tolist())):
        if start >= done and rng.random() < rate / (2 - rate):
            between = sample["text"][end:begin]
            edits.append((start, last, f"{text.word(number + 1)}{between}{text.word(number)}"))
            done = last
    return splice(sample, "text", edits)


def in_front(sample: Sample, words: Sequence[str]) -> Sample:
    """The text behind these words."""
    return splice(sample, "text", [(0, 0, "".join(f"{word} " for word in words))])


def single_words(run: EvaluatedRun) -> dict[str, int]:
    """The words of letters that are one token each, within a text, with the numbers of these tokens."""
    ids = run.tokenizer.ordinary_ids.tolist()
    words = {run.tokenizer.decode([i]).strip(): i for i in ids}
    written = [word for word in words if word.isalpha() and len(word) > 1]
    encoded = run.tokenizer.encode_batch([f". {word}" for word in written])
    before = len(run.tokenizer.encode("."))
    found = {word: int(of.ids[-1]) for word, of in zip(written, encoded, strict=True) if len(of.ids) == before + 1}
    if not found:
        raise WorkbenchError(f"{run.folder}: its tokenizer has no whole words, so no trigger can be searched")
    return found


class TriggerSearch:
    """A search for the words in front of texts that raise a head's loss.

    Args:
        texts: labelled samples.
    """

    def __init__(self, run: EvaluatedRun, texts: Sequence[Sample]) -> None:
        self.run, self.texts, self.words = run, list(texts), single_words(run)
        embedding: Any = run.network.embeddings[STREAM]
        if not isinstance(getattr(embedding, "token", None), nn.Embedding):
            raise WorkbenchError(f"{run.folder}: its text has no table of tokens, whose gradients a trigger needs")
        self.table: nn.Embedding = embedding.token

    def found(self, start: Sequence[str]) -> list[str]:
        """The trigger that the search reaches from these words."""
        words = list(start)
        best, names = self.loss(words), list(self.words)
        rows = self.table.weight.detach()[torch.tensor([self.words[name] for name in names])]
        for place in [*range(len(words))] * SWEEPS:
            scores = rows @ self.gradients(words)[place]
            for row in scores.topk(min(TRIED, len(names))).indices.tolist():
                tried = [*words[:place], names[row], *words[place + 1 :]]
                if (loss := self.loss(tried)) > best:
                    best, words = loss, tried
        return words

    def loss(self, words: Sequence[str]) -> float:
        """The mean loss of the texts behind these words."""
        with torch.inference_mode():
            return float(self._loss(self._sequences(words))) / len(self.texts)

    def gradients(self, words: Sequence[str]) -> Tensor:
        """The gradients of the mean loss by the rows of the words, added up over the texts [words, width].

        Raises:
            WorkbenchError: no text has the words as one token each.
        """
        sequences = self._sequences(words)
        length = sum(len(word) + 1 for word in words)
        with torch.enable_grad(), _rows_of(self.table) as rows:
            (self._loss(sequences) / len(self.texts)).backward()
        self.run.loaded.model.zero_grad(set_to_none=True)
        grad, first, read = rows[0].grad, 0, 0
        total = torch.zeros(len(words), self.table.embedding_dim)
        assert grad is not None
        for sequence in sequences:
            fields = sequence.fields(STREAM)
            starts = fields["char_start"]
            own = np.flatnonzero(
                (starts >= 0) & (starts < length) & (fields["token_type_ids"] == 0) & ~fields["special"]
            )
            if len(own) == len(words):  # each is one token
                total += grad[first + torch.from_numpy(own)].float().cpu()
                read += 1
            first += len(starts)
        if not read:
            raise WorkbenchError(
                f"{self.run.folder}: in no text are the words of the trigger ({' '.join(words)}) a token each, so none "
                "can be searched; its builder cuts the beginning of texts, or changes them"
            )
        return total.to(grad.device)

    def _sequences(self, words: Sequence[str]) -> list[TokenSequence]:
        placed = self.run.objective
        sequences = self.run.task.sequences([in_front(text, words) for text in self.texts], (0,))
        placed.objective.corrupt(sequences, Draws(self.run.task.seed, self.run.task.name, placed.name, number=(0,)))
        return sequences

    def _loss(self, sequences: list[TokenSequence]) -> Tensor:
        batch = collate(sequences).to(self.table.weight.device)
        inputs = HeadInputs.of(self.run.network, batch, batch.targets[self.run.objective.name])
        loss: Tensor = self.run.head(inputs).loss
        return loss


@contextmanager
def _rows_of(table: nn.Embedding) -> Iterator[list[Tensor]]:
    """A block in which the rows that are read from a table are leaves with gradients."""
    rows: list[Tensor] = []

    def leaf(module: nn.Module, given: Any, output: Tensor) -> Tensor:
        rows.append(output.detach().requires_grad_())
        return rows[-1]

    hook = table.register_forward_hook(leaf)
    try:
        yield rows
    finally:
        hook.remove()

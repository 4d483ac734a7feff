"""Extractive question answering: the stretch of a text that answers a question (BERT, arXiv:1810.04805, sections 4.2
and 4.3).

With h_i the states of the text's tokens and of [CLS], which means "not in this text",

    (s_i, e_i) = W dropout(h_i) + b
    L = -log softmax(s)[first token of the answer] - log softmax(e)[its last token], each a label of its own

A text that is longer than a sequence is read in several; those without the whole answer have the label [CLS]. The
answer is the stretch i <= j of greatest s_i + e_j of all of them. Where questions may have no answer, the result is "no
answer" if the least score of [CLS] among them is greater.

Unlike in the published code, the softmax does not run over the question's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Dropout, Word
from workbench.metrics.answers import answer_scores
from workbench.models.permutation import padded_groups
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Fields, Rows, Sequence, code_points, texts_of

if TYPE_CHECKING:
    from workbench.models.network import Network

UNKNOWN = -100


class FoundSpan(NamedTuple):
    """The characters of an answer, 0 and 0 for none, and its probability among the stretches of its window."""

    start: int
    end: int
    confidence: float


class SpanExtraction(Objective):
    """Span extraction, or extractive question answering (BERT, arXiv:1810.04805, sections 4.2 and 4.3): the span of the
    text that answers the question, for sequences of the builder `passage`.

    Args:
        no_answer: whether some questions have no answer; otherwise one is always returned.
        longest: the most tokens of an answer.
        stream: the stream whose states are read.
        dropout: of these states.
    """

    reads = ("answers",)
    measured = ("predicted", "predicted_length", "answers", "answer_length", "answer_count")
    reported = ("place", "confidence")

    def __init__(
        self, no_answer: bool = False, longest: Count = 30, stream: Word = "text", dropout: Dropout = 0.1
    ) -> None:
        self.no_answer, self.longest = no_answer, longest
        self.stream, self.dropout = stream, dropout

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the targets of every sequence; changes nothing.

        `rows` [candidates]: [CLS] and the text's tokens; `candidates` [1] their number; `places` [candidates, 2] in
        characters; `labels` [1, 2] the first and last of the answer among them; `part` [1] the window's number, from 0.
        The first window of a text also has its characters and the right answers' (`workbench.sequences.sequence`).

        Raises:
            WorkbenchError: a sequence has no text next to it.
        """
        for sequence in sequences:
            if "text" not in sequence.meta:
                raise WorkbenchError(
                    f"objective {self.name!r}: sequence {sequence.key!r} is no question on a text; use the builder "
                    "`passage` on texts with a question in `second`"
                )
            stream = sequence.streams[self.stream]
            of_text = np.flatnonzero((stream["char_start"] >= 0) & ~stream["taken"])
            rows = np.concatenate([[0], of_text])
            sequence.targets[self.name] = {
                "rows": Rows(self.stream, rows),
                "candidates": np.array([len(rows)]),
                "places": np.stack([stream["char_start"][rows], stream["char_end"][rows]], axis=1),
                "labels": np.array([label_of(sequence, stream, of_text)]),
                "part": np.array([sequence.draw[-1]]),
                **_texts(sequence),
            }
        return {}

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """Exact match and F1 over words."""
        return answer_scores(*answer_target(made))

    def head(self, network: Network) -> Head:
        return SpanExtractionHead(self.width(network, self.stream), self)


class SpanExtractionHead(Head):
    """A linear layer that scores each token as the first and as the last one of the answer."""

    def __init__(self, hidden_size: int, options: SpanExtraction) -> None:
        super().__init__()
        self.ends = nn.Linear(hidden_size, 2)
        self.dropout = nn.Dropout(options.dropout)
        self.stream, self.no_answer, self.longest = options.stream, options.no_answer, options.longest

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metric `accuracy` of the first and last tokens. Outputs: `logits` [candidates, 2]; in evaluation the answers
        with their `place` [questions, 2] in characters and their `confidence` [questions], and the right ones."""
        targets = inputs.targets
        scores = self.ends(self.dropout(inputs.states[self.stream][targets["rows"]])).float()
        counts = inputs.known("candidates")
        padded = padded_groups(scores, counts, fill=float("-inf"))[0].transpose(1, 2)
        labels = targets["labels"]
        loss = F.cross_entropy(padded.flatten(0, 1), labels.flatten(), ignore_index=UNKNOWN, reduction="sum")
        counted = labels != UNKNOWN
        right = ((padded.argmax(2) == labels) & counted).sum()
        made = {"logits": scores}
        if not self.training:
            made |= self._made(scores.split(counts.tolist()), {name: t.cpu() for name, t in targets.items()})
        return LossOutput(loss, {"accuracy": (right, counted.sum())}, made)

    def _made(self, parts: tuple[Tensor, ...], targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The answers to the questions whose right answers are known."""
        places = targets["places"].split(targets["candidates"].tolist())
        known = (targets["labels"][:, 0] != UNKNOWN).tolist()
        texts = iter(targets["text"].split(targets["text_length"].tolist()))
        numbers = np.cumsum([part == 0 for part in targets["part"].tolist()]).tolist()
        predicted, answers = [], []
        for _, group in groupby(range(len(parts)), key=lambda i: numbers[i]):
            windows, text = list(group), next(texts)
            if known[windows[0]]:
                answers.append(self._answer([(parts[i].cpu(), places[i]) for i in windows]))
                predicted.append(text[answers[-1].start : answers[-1].end])
        return {
            "predicted": torch.cat([targets["text"][:0], *predicted]),
            "predicted_length": torch.tensor([len(text) for text in predicted], dtype=torch.int64),
            "place": torch.tensor([[each.start, each.end] for each in answers], dtype=torch.int64).view(-1, 2),
            "confidence": torch.tensor([each.confidence for each in answers]),
            **{name: targets[name] for name in ("answers", "answer_length", "answer_count")},
        }

    def _answer(self, windows: list[tuple[Tensor, Tensor]]) -> FoundSpan:
        """The best stretch of several parts of a text."""
        best, found, none = -float("inf"), FoundSpan(0, 0, 0.0), FoundSpan(0, 0, 1.0)
        least = float("inf")
        for scores, places in windows:
            total = float(scores.logsumexp(0).sum())
            if float(scores[0].sum()) < least:
                least = float(scores[0].sum())
                none = FoundSpan(0, 0, math.exp(least - total))
            both = scores[1:, :1] + scores[1:, 1]  # [first token, last token]
            allowed = torch.ones_like(both).triu().tril(self.longest - 1).bool()
            both = both.masked_fill(~allowed, -float("inf"))
            if len(both) and float(both.max()) > best:
                best, at = float(both.max()), int(both.argmax())
                ends = places[1 + at // len(both), 0], places[1 + at % len(both), 1]
                found = FoundSpan(int(ends[0]), int(ends[1]), math.exp(best - total))
        return none if self.no_answer and least > best else found


def answer_target(made: Mapping[str, Tensor]) -> tuple[list[str], list[list[str]]]:
    """The answers and the right ones of each question, from the outputs of a head."""
    predicted = texts_of(made["predicted"], made["predicted_length"].tolist())
    right = iter(texts_of(made["answers"], made["answer_length"].tolist()))
    return predicted, [[next(right) for _ in range(count)] for count in made["answer_count"].tolist()]


def label_of(sequence: Sequence, stream: Fields, rows: np.ndarray) -> tuple[int, int]:
    """The first and last token of the answer among [CLS] (0) and the rows of the text (from 1).

    [CLS] twice where there is none, or this window does not hold the whole of it; `UNKNOWN` twice where the sample has
    no answers.
    """
    if not _known(sequence):
        return (UNKNOWN, UNKNOWN)
    if not sequence.meta["answers"]:
        return (0, 0)
    start, end = sequence.meta["answer_spans"][0]
    starts, ends = stream["char_start"][rows], stream["char_end"][rows]
    first, last = int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(starts, end)) - 1
    text = sequence.meta["text"]
    if first > last or text[start : starts[first]].strip() or text[ends[last] : end].strip():
        return (0, 0)
    return (first + 1, last + 1)


def _known(sequence: Sequence) -> bool:
    answers = sequence.meta.get("answers")
    return answers is not None and (not answers or bool(sequence.meta.get("answer_spans")))


def _texts(sequence: Sequence) -> dict[str, np.ndarray]:
    """The characters of the text and of its right answers, for its first window; for the others nothing."""
    first = sequence.draw[-1] == 0
    answers = list(sequence.meta["answers"]) if first and _known(sequence) else []
    text = sequence.meta["text"] if first else ""
    return {
        "text": code_points(text),
        "text_length": np.array([len(text)] if first else [], np.int64),
        "answers": code_points("".join(answers)),
        "answer_length": np.array([len(answer) for answer in answers], np.int64),
        "answer_count": np.array([len(answers)] if first and _known(sequence) else [], np.int64),
    }

"""Tags of words: part of speech, named entities, chunks (BERT, arXiv:1810.04805, section 5.3).

With h_w the state of a word's first token and y_w its tag,

    z_w = W dropout(h_w) + b
    L = -log softmax(z_w)[y_w], summed over the words that have a tag
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequences
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.errors import BadValueError, WorkbenchError, unknown
from workbench.keyed import Draws
from workbench.metrics.chunks import OUTSIDE, WORD_TAG, tag_scores
from workbench.objectives._vocabulary import TokenLoss
from workbench.options.bounds import Dropout, Name, Word
from workbench.sequences.sequence import Fields, Rows, Sequence
from workbench.tasks.forward import Seen
from workbench.tasks.objective import BatchTargets, Head, LossOutput, Objective

if TYPE_CHECKING:
    from workbench.models.network import Network

UNTAGGED = -100


class Tag(Objective):
    """The tag of every word, which the sample's `tags` [[start, end, name], ...] name; a word outside has the tag O.

    A name such as `B-person`, `I-person` or `O` is the tag of the one word that it stands for, however many pieces the
    tokenizer cuts it in: its first piece is read. Any other name, `person`, is that of a stretch, whose first word has
    the tag `B-person` and whose other words have `I-person`. Stretches must not overlap: a word has one tag.

    Args:
        tags: names of the words' tags; a tag's place is its row.
        stream: whose states are read.
        dropout: of what is read.
    """

    reads = ("tags",)
    measured = ("predicted", "gold", "words", "places")

    def __init__(self, tags: Annotated[list[Name], MinLen(2)], stream: Word = "text", dropout: Dropout = 0.1) -> None:
        if len(set(tags)) < len(tags) or OUTSIDE not in tags:
            raise WorkbenchError(f"objective tag: tags must be different names, {OUTSIDE} among them; found {tags}")
        self.tags = {name: row for row, name in enumerate(tags)}
        self.stream, self.dropout = stream, dropout

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the targets of every sequence, and takes the rows; changes nothing else.

        `rows` [words] of the words' first tokens, `labels` [words], `places` [words, 2] of the tokens in the text's
        characters, and `words` [1]. A sequence without `tags` has no words.

        Raises:
            WorkbenchError: a tag that the objective does not know, or stretches that overlap.
        """
        for sequence in sequences:
            text = sequence.streams[self.stream]
            rows, labels = self._tagged(sequence, text, sequence.meta.get("tags"))
            text["taken"][rows] = True
            sequence.targets[self.name] = {
                "rows": Rows(self.stream, rows),
                "labels": labels,
                "places": np.stack([text["char_start"][rows], text["char_end"][rows]], axis=1),
                "words": np.array([len(rows)], np.int64),
            }
        return {}

    def _tagged(self, sequence: Sequence, text: Fields, tags: list[Any] | None) -> tuple[np.ndarray, np.ndarray]:
        """The rows that have a tag, and it."""
        if tags is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        check_apart(tags, f"sequence {sequence.key!r}")
        rows = first_tokens(text)
        labels = np.full(len(rows), self.tags[OUTSIDE], np.int64)
        starts, ends, done = text["char_start"][rows], text["char_end"][rows], 0
        for start, end, name in tags:
            first = max(done, int(np.searchsorted(ends, start, side="right")))
            done = max(first, int(np.searchsorted(starts, end, side="left")))
            whole = WORD_TAG.fullmatch(name) is None
            if first < done:
                labels[first] = self._row(f"B-{name}" if whole else name, sequence)
            if first + 1 < done:
                labels[first + 1 : done] = self._row(f"I-{name}", sequence) if whole else UNTAGGED
        return rows[labels != UNTAGGED], labels[labels != UNTAGGED]

    def _row(self, name: str, sequence: Sequence) -> int:
        if name not in self.tags:
            raise unknown("tag", name, self.tags, f"`tags` of sequence {sequence.key!r}")
        return self.tags[name]

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """Accuracy over words; precision, recall and F1 over chunks."""
        return tag_scores(made["predicted"].numpy(), made["gold"].numpy(), made["words"].tolist(), list(self.tags))

    def head(self, network: Network) -> Head:
        if self.stream not in network.sizes:
            raise unknown("stream", self.stream, network.sizes, f"objective {self.name!r}")
        return TagHead(network.sizes[self.stream], len(self.tags), self.stream, self.dropout)


class TagHead(Head):
    """A linear layer on the states of words' first tokens."""

    def __init__(self, hidden_size: int, tags: int, stream: str, dropout: float) -> None:
        super().__init__()
        self.classifier = nn.Linear(hidden_size, tags)
        self.dropout = nn.Dropout(dropout)
        self.stream = stream
        self.loss = TokenLoss()

    def forward(self, seen: Seen) -> LossOutput:
        """Metric `accuracy`; made: `predicted` and `gold` [words], `places` [words, 2], `words` [sequences]."""
        targets = seen.targets
        logits: Tensor = self.classifier(self.dropout(seen.states[self.stream][targets["rows"]]))
        loss, metrics, _ = self.loss(logits, targets["labels"])
        told = {"gold": targets["labels"], "places": targets["places"], "words": targets["words"]}
        return LossOutput(loss, metrics, {"predicted": logits.argmax(-1), **told})


def check_apart(tags: Sequences[Any], where: str) -> None:
    """Raises BadValueError where two of the sorted stretches overlap: a word has one tag, so one would be lost."""
    for first, second in pairwise(tags):
        if second[0] < first[1]:
            told = f"the tags {list(first)} and {list(second)} overlap, and a word has one tag; prepare one of them"
            raise BadValueError(where, told, tags, "overlapping tags")


def first_tokens(text: Fields) -> np.ndarray:
    """The rows of a text's words, by their first tokens: those of the first segment that no objective has labelled."""
    rows = np.flatnonzero((text["word_ids"] >= 0) & (text["char_start"] >= 0) & (text["token_type_ids"] == 0))
    rows = rows[np.diff(text["word_ids"][rows], prepend=-1) != 0]
    return rows[~text["special"][rows] & ~text["taken"][rows]]

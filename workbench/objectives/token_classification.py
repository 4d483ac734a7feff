"""Tags of words: part of speech, named entities, chunks (BERT, arXiv:1810.04805, section 5.3).

With h_w the state of a word's first token and y_w its tag,

    z_w = W dropout(h_w) + b
    L = -log softmax(z_w)[y_w], summed over the words that have a tag
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from collections.abc import Sequence as Sequences
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import torch
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.core.errors import BadValueError, WorkbenchError, unknown
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Dropout, Name, Word
from workbench.metrics.chunks import spelt, tag_scores
from workbench.metrics.tag_schemes import OUTSIDE, SchemeName, has_ends, in_iobes
from workbench.objectives._token_head import TokenLoss
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Fields, Rows, Sequence
from workbench.sequences.transfer import on_device, rows_where

if TYPE_CHECKING:
    from workbench.models.network import Network

UNTAGGED = -100


class TaggedWords(NamedTuple):
    """Words of a text: their places [words, 2] in characters, the rows of their tags [words], and whether each is a
    word of the tokenizer's [words]."""

    places: np.ndarray
    labels: np.ndarray
    tokens: np.ndarray

    @classmethod
    def none(cls) -> TaggedWords:
        return cls(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.zeros(0, bool))

    def some(self, which: np.ndarray) -> TaggedWords:
        """The words of a mask or an order."""
        return TaggedWords(*(column[which] for column in self))

    def among(self, lost: np.ndarray) -> TaggedWords:
        """These and words without a token, [start, end, tag] each, in the order of the text."""
        places = np.concatenate([self.places, lost[:, :2]])
        both = TaggedWords(
            places, np.concatenate([self.labels, lost[:, 2]]), np.concatenate([self.tokens, np.zeros(len(lost), bool)])
        )
        return both.some(np.argsort(places[:, 0], kind="stable"))


class TokenClassification(Objective):
    """Token classification: parts of speech, named entities, chunks (BERT, arXiv:1810.04805, section 5.3). The sample's
    `tags` [[start, end, name], ...] name the tag of every word; a word outside has the tag O.

    A name such as `B-person`, `I-person` or `O` is the tag of the one word at its place, however many pieces the
    tokenizer cuts it in: its first piece is read. Any other name, `person`, is that of a span, whose first word has
    the tag `B-person` and whose other words have `I-person`. Spans must not overlap: a word has one tag. The `scheme`
    decides which names are tags of words; these are read as IOBES spells them.

    A tag that covers no token (odd characters) is that of a word which is never found: it counts as predicted O.

    Args:
        tags: names of the words' tags, spelled as in IOBES; the index of a tag is its row.
        scheme: that of the corpora's tags (BIO, IOBES, BILOU, BMES; spans: all names are those of spans). Null: names
            in `tags` are tags of words.
        stream: the stream whose states are read.
        dropout: of these states.
    """

    reads = ("tags",)
    measured = ("predicted", "gold", "read", "words", "places")
    reported = ("confidence",)

    def __init__(
        self,
        tags: Annotated[list[Name], MinLen(2)],
        scheme: SchemeName | None = None,
        stream: Word = "text",
        dropout: Dropout = 0.1,
    ) -> None:
        if len(set(tags)) < len(tags) or OUTSIDE not in tags:
            raise WorkbenchError(f"objective tag: tags must be different names, {OUTSIDE} among them; found {tags}")
        self.tags = {name: row for row, name in enumerate(tags)}
        self.rows, self.respells = self.tags, False
        self.scheme, self.stream, self.dropout = scheme, stream, dropout

    @classmethod
    def class_names(cls, options: Mapping[str, Any]) -> list[str] | None:
        return options.get("tags")

    @property
    def names(self) -> list[str]:
        """The tags by their rows, and behind them those that only a corpus of `read_as` has."""
        return list(self.rows)

    def read_as(self, scheme: SchemeName | None, tags: Set[str]) -> None:
        """Read a corpus whose tags have a scheme and these names, as IOBES spells them. Its chunks are spelt as the
        objective's own, with or without marks of their ends. A tag that is none of its own is never predicted."""
        ends, own = has_ends(tags), has_ends(self.tags)
        self.scheme, self.respells = scheme, None not in (ends, own) and ends != own
        more = {f"{letter}-{tag[2:]}" for tag in tags - {OUTSIDE} for letter in "BIES"} if self.respells else {*tags}
        self.rows = {name: row for row, name in enumerate([*self.tags, *sorted(more - self.tags.keys())])}

    def spelt(self, name: str) -> tuple[str, str | None]:
        """The tags of the first and of the other words at the place of a name; a word's tag has no others."""
        own = name if self.scheme is None and name in self.tags else None
        word = in_iobes(name, self.scheme) if self.scheme else own
        return (word, None) if word else (f"B-{name}", f"I-{name}")

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the targets of every sequence, and takes the rows; changes nothing else.

        `gold` [words] and `places` [words, 2], in the text's characters, of the words that the sequence is read for;
        `read` [words], whether a word has a token; `rows` and `labels` [words that have]; `words` [1] their number, and
        `part` [1] the window's number, from 0. A sequence without `tags` has no words.

        Raises:
            WorkbenchError: a tag that the objective does not know, stretches that overlap, or a sequence without a
                record of its words.
        """
        for sequence in sequences:
            text = sequence.streams[self.stream]
            words = self._own(sequence) if "tags" in sequence.meta else TaggedWords.none()
            free, rows = rows_at(text, words.places[:, 0])
            words, rows = words.some(free), rows[free]
            read = words.tokens & (rows >= 0)
            text["taken"][rows[read]] = True
            sequence.targets[self.name] = {
                "rows": Rows(self.stream, rows[read]),
                "labels": np.where(words.labels < len(self.tags), words.labels, UNTAGGED)[read],
                "gold": words.labels,
                "read": read,
                "places": words.places,
                "words": np.array([len(read)], np.int64),
                "part": np.array([sequence.draw[-1]], np.int64),
            }
        return {}

    def _own(self, sequence: Sequence) -> TaggedWords:
        """The tagged words that the sequence is read for."""
        if "words" not in sequence.meta:
            raise WorkbenchError(
                f"objective {self.name!r}: sequence {sequence.key!r} has no record of the words that it is read for; "
                "use the builder `tagged_text`"
            )
        check_apart(sequence.meta["tags"], f"sequence {sequence.key!r}")
        words = self._tagged(sequence, sequence.meta["words"], sequence.meta["tags"])
        begin, end = sequence.meta["own"]
        return words.some((words.places[:, 0] >= begin) & (words.places[:, 0] < end))

    def _tagged(self, sequence: Sequence, places: np.ndarray, tags: list[Any]) -> TaggedWords:
        """The words of the whole text that have a tag; a tag that covers no token is that of a word without one."""
        labels = np.full(len(places), self.tags[OUTSIDE], np.int64)
        lost: list[tuple[int, int, int]] = []
        starts, ends, done = places[:, 0], places[:, 1], 0
        for start, end, name in tags:
            first = max(done, int(np.searchsorted(ends, start, side="right")))
            done = max(first, int(np.searchsorted(starts, end, side="left")))
            begin, inside = self.spelt(name)
            label = self._row(begin, sequence)
            if first < done:
                labels[first] = label
                labels[first + 1 : done] = self._row(inside, sequence) if inside else UNTAGGED
            else:
                lost.append((start, end, label))
        tagged = TaggedWords(places, labels, np.ones(len(places), bool)).some(labels != UNTAGGED)
        tagged = tagged.among(np.array(lost, np.int64).reshape(-1, 3))
        if not self.respells:
            return tagged
        names = spelt((self.names[row] for row in tagged.labels.tolist()), ends=bool(has_ends(self.tags)))
        return tagged._replace(labels=np.array([self.rows[name] for name in names], np.int64))

    def _row(self, name: str, sequence: Sequence) -> int:
        if name not in self.rows:
            raise unknown("tag", name, self.tags, f"`tags` of sequence {sequence.key!r}")
        return self.rows[name]

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """Accuracy over words; precision, recall and F1 over chunks."""
        return tag_scores(made["predicted"].numpy(), made["gold"].numpy(), made["words"].tolist(), self.names)

    def head(self, network: Network) -> Head:
        return TokenClassificationHead(self.width(network, self.stream), self)


class TokenClassificationHead(Head):
    """A linear layer on the states of words' first tokens."""

    by_class = ("classifier.weight", "classifier.bias")

    def __init__(self, hidden_size: int, options: TokenClassification) -> None:
        super().__init__()
        self.classifier = nn.Linear(hidden_size, len(options.tags))
        self.dropout = nn.Dropout(options.dropout)
        self.stream, self.outside = options.stream, options.tags[OUTSIDE]
        self.loss = TokenLoss()

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metric `accuracy` of the words that have a token. Outputs: `logits` [words that have, tags]; `predicted`
        (without a token `O`), `gold`, `read` and `confidence`, the probability of `predicted` (without a token 0)
        [words], `places` [words, 2], `words` [texts]: the windows of a text are joined."""
        targets = inputs.targets
        logits: Tensor = self.classifier(self.dropout(inputs.states[self.stream][targets["rows"]]))
        loss, metrics, _ = self.loss(logits, targets["labels"])
        read = rows_where(inputs.known("read"), logits.device)
        sure, best = logits.float().softmax(-1).max(-1)
        predicted = torch.full_like(targets["gold"], self.outside).index_copy(0, read, best)
        confidence = sure.new_zeros(len(predicted)).index_copy(0, read, sure)
        text = (inputs.known("part") == 0).cumsum(0) - 1
        words = torch.zeros_like(inputs.known("words")).index_add_(0, text, inputs.known("words"))
        arrays = {name: targets[name] for name in ("gold", "read", "places")}
        words = on_device(words[words > 0], logits.device)
        made = {"predicted": predicted, "confidence": confidence, "words": words, "logits": logits}
        return LossOutput(loss, metrics, {**made, **arrays})


def check_apart(tags: Sequences[Any], where: str) -> None:
    """Raises BadValueError where two of the sorted stretches overlap: a word has one tag, so one would be lost."""
    for first, second in pairwise(tags):
        if second[0] < first[1]:
            message = f"the tags {list(first)} and {list(second)} overlap, and a word has one tag; prepare one of them"
            raise BadValueError(where, message, tags, "overlapping tags")


def rows_at(text: Fields, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of words that begin at these characters, in the first segment.

    Returns:
        free: [words], whether no objective has labelled that row.
        rows: [words]; -1 where the sequence has none.
    """
    rows = np.flatnonzero((text["word_ids"] >= 0) & (text["char_start"] >= 0) & (text["token_type_ids"] == 0))
    rows = rows[~text["special"][rows]]
    known, firsts = np.unique(text["char_start"][rows], return_index=True)
    places = np.searchsorted(known, starts)
    there = np.append(known, -1)[places] == starts
    found = np.where(there, np.append(rows[firsts], -1)[places], -1)
    return ~there | ~np.append(text["taken"], False)[found], found

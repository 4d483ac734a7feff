"""Two texts of a sample as two sequences, a query and a passage, for the objective `contrast`.

query    [CLS] query: how long is the river? [SEP]        passage  [CLS] passage: It is 300 km long. [SEP]
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Annotated, Any, Literal

from annotated_types import MaxLen

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, CountOrZero, Means, Role, Word
from workbench.sequences.builder import Builder, sample_text, sequence_of
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.text_layout import VisibilityAlone
from workbench.text.tokenizer import Tokenizer

Prefix = Annotated[str, MaxLen(1000), Means("a text before another one, such as 'query: '")]


class TextPairBuilder(Builder):
    """Two texts of a sample as two sequences with the roles `query` and `passage`, for `contrast` (SimCSE,
    arXiv:2104.08821; E5, arXiv:2212.03533; DPR, arXiv:2004.04906). Other passages get the role `negative`.

    Texts that are too long lose their end; the tokens lost are counted.

    Args:
        passages: the passage of `text` is the sample's `second` text, the right one of its `choices` (the others are
            hard negatives), or `text` itself (`twice`: SimCSE without labels, whose two vectors differ by dropout).
        hard: most hard negatives of a sample: in training drawn anew in every epoch, else the first ones.
        query_prefix, passage_prefix: text before each query and passage (E5: "query: ", "passage: ").
        stream: the stream of passages: `text`, or one of its own (DPR's second encoder).
        begin, end: roles of the special tokens around each text; null for none.
        visibility: the tokens that each token sees.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        passages: Literal["second", "choices", "twice"] = "second",
        hard: CountOrZero = 0,
        query_prefix: Prefix = "",
        passage_prefix: Prefix = "",
        stream: Word = "text",
        begin: Role | None = "cls",
        end: Role | None = "sep",
        visibility: VisibilityAlone = "bidirectional",
    ) -> None:
        if hard and passages != "choices":
            raise WorkbenchError(f"hard = {hard}: only choices have hard negatives; set passages: choices, or hard: 0")
        super().__init__(tokenizer, max_length, begin, end, visibility=visibility)
        self.passages, self.hard, self.stream = passages, hard, stream
        self.query_prefix, self.passage_prefix = query_prefix, passage_prefix
        self.reads = {"second": ("second",), "choices": ("choices", "answer"), "twice": ()}[passages]
        self.drawn = True

    def evaluating(self) -> TextPairBuilder:
        """The same builder with the first hard negatives."""
        other = copy.copy(self)
        other.drawn, other.dropped = False, Counter()
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        wanted = [(sample, *text) for sample in samples for text in self._texts(sample, draws)]
        encoded = self.tokenizer.encode_batch([text for _, _, _, text in wanted])
        cut = [self.truncate(each, [], self.capacity)[0] for each in encoded]
        return [
            sequence_of(sample, {stream: self.frame.lay([text])[0]}, part, [], role=role)
            for (sample, part, role, _), text in zip(wanted, cut, strict=True)
            for stream in ["text" if role == "query" else self.stream]
        ]

    def _texts(self, sample: Sample, draws: Draws) -> list[tuple[int, str, str]]:
        """The number, the role and the text of each sequence of a sample."""
        passages = [self.passage_prefix + text for text in self._passages(sample, draws)]
        texts = [self.query_prefix + sample_text(sample), *passages]
        roles = ["query", "passage", *(["negative"] * (len(passages) - 1))]
        return [*zip(range(len(texts)), roles, texts, strict=True)]

    def _passages(self, sample: Sample, draws: Draws) -> list[str]:
        """The right passage, and hard negatives."""
        if self.passages == "twice":
            return [sample_text(sample)]
        for field in self.reads:
            if field not in sample:
                raise missing(sample, field)
        if self.passages == "second":
            return [str(sample["second"])]
        texts: list[Any] = list(sample["choices"])
        right = texts.pop(int(sample["answer"]))
        if self.drawn and self.hard:
            order = draws.of(tuple(sample.get("draw", ()))).permutation(len(texts))
            texts = [texts[number] for number in order.tolist()]
        return [right, *texts[: self.hard]]

"""A sentence and its translation: [SEP] a [SEP] [SEP] b [SEP], positions from 0 in both (TLM: XLM, arXiv:1901.07291,
section 3.4 and figure 1)."""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Role, Word
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import Builder, sequence_of
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.text_layout import joined, shifted
from workbench.text.tokenizer import Encoding, Tokenizer


class TranslationPairBuilder(Builder):
    """A sentence and its translation: [SEP] a [SEP] [SEP] b [SEP], with positions from 0 in both (XLM,
    arXiv:1901.07291, section 3.4). They are two of a record's `translations`, in a random order.

    Two of the languages are drawn, anew in every epoch, where a record has more. Where a pair is too long, the longer
    sentence is cut first, at its end, and the tokens lost are counted. The segments are 0 and 1, and
    `Sequence.languages` names their languages.

    Args:
        languages: those to draw from; by default all that a record has.
        begin, end: roles of the special tokens around each sentence; null for none.
        partial: mentions that begin or end inside a token: `cover` or `drop`.

    Raises:
        WorkbenchError: fewer than two languages, or one twice.
    """

    reads = ("translations",)
    provides = ("language",)

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        languages: list[Word] | None = None,
        begin: Role | None = "sep",
        end: Role | None = "sep",
        partial: Partial = "cover",
    ) -> None:
        super().__init__(tokenizer, max_length, begin, end, partial, segments=2)
        self.capacity = max_length - 2 * self.frame.size()
        self.languages = languages
        self.drawn = True
        if self.capacity < 2:
            raise WorkbenchError(
                f"max_length = {max_length} leaves no room for two sentences next to {2 * self.frame.size()} special "
                f"tokens; use at least {2 * self.frame.size() + 2}"
            )
        if languages is not None and not 2 <= len(languages) == len(set(languages)):
            raise WorkbenchError(f"languages = {', '.join(languages)}; allowed: two or more, each once")

    def evaluating(self) -> TranslationPairBuilder:
        """The first two languages, in their order."""
        other = copy.copy(self)
        other.drawn, other.dropped = False, Counter()
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        pairs = [self._pair(sample, draws) for sample in samples]
        texts = [sample["translations"][name] for sample, pair in zip(samples, pairs, strict=True) for name in pair]
        encoded = self.tokenizer.encode_batch(texts)
        each = zip(samples, pairs, encoded[::2], encoded[1::2], strict=True)
        return [self._sequence(sample, pair, [first, second]) for sample, pair, first, second in each]

    def _pair(self, sample: Sample, draws: Draws) -> tuple[str, str]:
        """Two languages of a sample."""
        if "translations" not in sample:
            raise missing(sample, "translations")
        named = [name for name in self.languages or sample["translations"] if name in sample["translations"]]
        if len(named) < 2:
            wanted = f"two of {', '.join(self.languages)}" if self.languages else "two languages"
            raise missing(sample, "translations", f"in {wanted}")
        if self.drawn:
            named = draws.of(tuple(sample.get("draw", ()))).permutation(named).tolist()
        return named[0], named[1]

    def _sequence(self, sample: Sample, pair: tuple[str, str], encoded: list[Encoding]) -> Sequence:
        streams, spans, row = [], [], 0
        linked = sample.get("translation_spans", {})
        for text, name, room in zip(encoded, pair, self._rooms(*map(len, encoded)), strict=True):
            kept, own = self.truncate(text, self.spans(text, linked.get(name, ())), room)
            stream, rows = self.frame.lay([kept])
            spans += shifted(own, row + rows[0])
            streams.append(stream)
            row += len(stream["input_ids"])
        stream = joined(streams)
        stream["token_type_ids"] = np.repeat([0, 1], [len(each["input_ids"]) for each in streams])
        return sequence_of(sample, {"text": stream}, 0, spans, languages=pair)

    def _rooms(self, first: int, second: int) -> tuple[int, int]:
        """The number of tokens of each sentence that are kept: the longer one is cut first."""
        if first + second <= self.capacity:
            return first, second
        kept = max(min(first, self.capacity // 2), self.capacity - second)
        return kept, self.capacity - kept

"""A source text and its target (a translation, a summary, an answer), for models that generate text.

text     two boats . [SEP]             target   zwei boote . [SEP]          an encoder and a decoder (T5, BART)
text     [CLS] two boats . [SEP] zwei boote . [SEP]                         one stack (UniLM, GPT): `stream: text`
"""

from __future__ import annotations

import copy
from collections import Counter

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Role, Word
from workbench.sequences.builder import Builder, sample_text, sequence_of
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence, Span
from workbench.sequences.text_layout import Frame, Visibility
from workbench.text.tokenizer import Encoding, Tokenizer


class TextToTextBuilder(Builder):
    """A source and a target text, for sequence-to-sequence models (translation, summaries, answers). They are a
    sample's `text` and `second`, or two of its `translations`.

    In one stream the target follows the source, whose rows are `taken`: they are read and not predicted. Texts that are
    too long lose their end; the tokens lost are counted.

    Args:
        source, target: languages of `translations`, the one that is read and the one that is generated; by default
            `text` and `second`.
        stream: the stream of the target: one of its own, or `text`.
        max_length: tokens of the stream `text`.
        max_target_length: tokens of the target; by default `max_length`, in one stream half of it.
        begin, end: roles of the special tokens around both; null for none.
        visibility: of the stream `text`: `prefix` or `causal` where it holds both.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        source: Word | None = None,
        target: Word | None = None,
        stream: Word = "target",
        max_target_length: Count | None = None,
        begin: Role | None = "cls",
        end: Role | None = "sep",
        visibility: Visibility = "bidirectional",
    ) -> None:
        self.pairs = stream == "text"
        if (source is None) != (target is None):
            raise WorkbenchError(f"source = {source}, target = {target}; name both languages, or neither")
        if self.pairs == (visibility == "bidirectional") or visibility == "anticausal":
            allowed = "prefix or causal, as both texts are in one stream" if self.pairs else "bidirectional"
            raise WorkbenchError(f"visibility = {visibility}; allowed: {allowed}")
        super().__init__(tokenizer, max_length, begin, end, segments=1 + self.pairs, visibility=visibility)
        self.source, self.target, self.stream = source, target, stream
        self.reads = ("second",) if source is None else ("translations",)
        self.max_target_length = max_target_length or (max_length // 2 if self.pairs else max_length)
        self.written = Frame(tokenizer, None if self.pairs else begin, end, "causal")
        room = self.max_target_length - self.written.size()
        if room < 1 or (self.pairs and self.capacity - room < 1):
            raise WorkbenchError(
                f"max_length = {max_length}, max_target_length = {self.max_target_length}: no room for text next to "
                "the special tokens; use other lengths"
            )
        self.room = room
        self.optional = False

    def evaluating(self) -> TextToTextBuilder:
        """The same builder for texts that need not have a target."""
        other = copy.copy(self)
        other.optional, other.dropped = True, Counter()
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        texts = [(self.source_text(sample), self.target_text(sample)) for sample in samples]
        read = self.tokenizer.encode_batch([source for source, _ in texts])
        wanted = iter(self.tokenizer.encode_batch([target for _, target in texts if target is not None]))
        return [
            self._sequence(sample, encoded, None if target is None else next(wanted))
            for sample, encoded, (_, target) in zip(samples, read, texts, strict=True)
        ]

    def source_text(self, sample: Sample) -> str:
        """The source text."""
        if self.source is None or (self.optional and "translations" not in sample):
            return sample_text(sample)
        return self._in(sample, self.source)

    def target_text(self, sample: Sample) -> str | None:
        """The target text; None where a sample has none and need not have one."""
        there = "second" in sample if self.target is None else self.target in sample.get("translations", {})
        return None if self.optional and not there else self.wanted_text(sample)

    def wanted_text(self, sample: Sample) -> str:
        """The target text.

        Raises:
            WorkbenchError: the sample has none.
        """
        if self.target is not None:
            return self._in(sample, self.target)
        if "second" not in sample:
            raise missing(sample, "second")
        return str(sample["second"])

    def _in(self, sample: Sample, language: str) -> str:
        if language not in sample.get("translations", {}):
            raise missing(sample, "translations", f"in {language!r}")
        return str(sample["translations"][language])

    def _sequence(self, sample: Sample, read: Encoding, wanted: Encoding | None) -> Sequence:
        read, spans = self.truncate(read, self._mentions(sample, read), self.capacity - self.pairs * self.room)
        if wanted is not None:
            wanted, _ = self.truncate(wanted, [], self.room)
        segments = [read] if wanted is None or not self.pairs else [read, wanted]
        text, rows = self.frame.lay(segments)
        if self.pairs:
            text["taken"][: len(text["taken"]) if len(rows) == 1 else rows[1]] = True
        streams = {"text": text}
        if wanted is not None and not self.pairs:
            streams[self.stream] = self.written.lay([wanted])[0]
        kept = self.kept(spans, rows[0])
        return sequence_of(sample, streams, 0, kept)

    def _mentions(self, sample: Sample, read: Encoding) -> list[Span]:
        by_language = "translations" in sample and self.source is not None
        found = sample.get("translation_spans", {}).get(self.source) if by_language else sample.get("spans")
        return self.spans(read, found or ())

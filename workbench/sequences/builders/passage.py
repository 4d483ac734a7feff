"""A question and the text with its answer: [CLS] question [SEP] text [SEP], for reading comprehension (BERT,
arXiv:1810.04805, section 4.2)."""

from __future__ import annotations

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import Builder, sample_text, sequence_of
from workbench.sequences.missing_fields import missing
from workbench.sequences.segments import begins
from workbench.sequences.sequence import Sample, Sequence, Span
from workbench.sequences.text_layout import VisibilityAlone, shifted
from workbench.text.tokenizer import Encoding, Tokenizer


class PassageBuilder(Builder):
    """A question and a passage: [CLS] question [SEP] text [SEP], for extractive question answering (BERT,
    arXiv:1810.04805, section 4.2). The question is the sample's `second` and has at most `max_question` tokens. The
    passage gets the remaining tokens.

    A longer text becomes several overlapping sequences. Each begins `stride` tokens after the one before, so that an
    answer which one of them cuts is whole in another. The rows of the question have no characters. `Sequence.meta` has
    the sample's `answers` and `answer_spans`, and its `text`, to which they and `char_start` refer.

    Args:
        max_question: tokens of the question, by default 64, or half of the room if that is less; tokens beyond are
            counted.
        stride: by default half of the room that is left to the text (BERT: 128 of 384 tokens).
        partial: linked entities that begin or end inside a token: `cover` or `drop`.
        visibility: the tokens that each token sees: all (`bidirectional`), those up to itself (`causal`), or itself
            and those after it (`anticausal`).

    Raises:
        WorkbenchError: the question leaves no room for the text.
    """

    reads = ("second",)

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        max_question: Count | None = None,
        stride: Count | None = None,
        partial: Partial = "cover",
        visibility: VisibilityAlone = "bidirectional",
    ) -> None:
        super().__init__(tokenizer, max_length, partial=partial, segments=2, visibility=visibility)
        self.stride = stride
        self.max_question = min(64, self.capacity // 2) if max_question is None else max_question
        if self.max_question >= self.capacity:
            raise WorkbenchError(
                f"max_question = {self.max_question} leaves no room for the text: max_length = {max_length} holds "
                f"{self.capacity} tokens next to the special ones; choose a smaller max_question"
            )

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        for sample in samples:
            if "second" not in sample:
                raise missing(sample, "second")
        questions = self.tokenizer.encode_batch([sample["second"] for sample in samples])
        texts = self.tokenizer.encode_batch([sample_text(sample) for sample in samples])
        each = zip(samples, questions, texts, strict=True)
        return [sequence for sample, question, text in each for sequence in self._sequences(sample, question, text)]

    def _sequences(self, sample: Sample, question: Encoding, text: Encoding) -> list[Sequence]:
        spans = self.spans(text, sample.get("spans", ()))
        question, asked = self.truncate(
            question, self.spans(question, sample.get("second_spans", ())), self.max_question
        )
        room = self.capacity - len(question)
        meta = {name: sample[name] for name in ("text", "answers", "answer_spans") if name in sample}
        return [
            self._sequence(sample, number, (question, asked), (text, spans), (begin, begin + room), meta)
            for number, begin in enumerate(begins(len(text), room, self.stride or max(1, room // 2)))
        ]

    def _sequence(
        self,
        sample: Sample,
        number: int,
        asked: tuple[Encoding, list[Span]],
        read: tuple[Encoding, list[Span]],
        window: tuple[int, int],
        meta: dict,
    ) -> Sequence:
        """The number-th sequence: the question, and the window of the text's tokens."""
        question, text = asked[0], read[0]
        end = min(window[1], len(text))
        stream, rows = self.frame.lay([question, text.part(window[0], end)])
        for name in ("char_start", "char_end"):
            stream[name][: rows[1]] = -1
        spans = shifted(asked[1], rows[0]) + shifted(read[1], rows[1], window[0], end)
        return sequence_of(sample, {"text": stream}, number, spans, meta=meta)

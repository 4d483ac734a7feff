"""A text inside a pattern with a place that a word fills (PET, Schick and Schuetze, arXiv:2001.07676, section 3.1)."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any, NamedTuple

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Name
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import CUT_SPAN, TRUNCATED, sample_text
from workbench.sequences.builders.sentence_pair import SentencePairBuilder
from workbench.sequences.segments import between, cut_longer, segments_of, surrounded, swapped, with_second
from workbench.sequences.sequence import Sample, Sequence
from workbench.text.tokenizer import Tokenizer

PLACEHOLDERS = ("a", "e", "o", "1", ".", "\u7684", "\u306e", "\u0430")
"""Words in the place of a mask until its token is masked. The first that the tokenizer reads as one token is used."""
MASK, TEXT, SECOND = "{mask}", "{text}", "{second}"
SECOND_UNREAD = "second text without a place in the pattern"
SPARE = 2
"""Tokens that are left free, as a text and a pattern side by side may have more of them than each by itself."""
FORM = (
    "allowed: one {text} and one {mask} with words around them, and after || a second segment with {second}, {text} or "
    "words alone, as '{text} It was {mask}.' or '{second}? || {mask}, {text}'"
)


class Segment(NamedTuple):
    """A segment of a pattern: whether it holds a text, the words before and after it, and the start of the mask in the
    words before (False) or after it (True)."""

    within: bool
    before: str
    after: str
    mask: tuple[bool, int] | None

    def place(self, length: int) -> int | None:
        """The start of the mask, where the text has this length; None where the segment has no mask."""
        if self.mask is None:
            return None
        behind, start = self.mask
        return start + (len(self.before) + length if behind else 0)


class ClozeBuilder(SentencePairBuilder):
    """A text, or a pair, inside a pattern with a place for one word (PET, Schick and Schuetze, arXiv:2001.07676,
    section 3.1). The objective `cloze` masks this place, and predicts its word.

    The pattern stays whole: a text that is too long is cut at its end, of a pair the longer one first, and the tokens
    lost are counted. Linked entities of the text keep their places; those that the cut loses are counted, and so are
    second texts for which the pattern has no place.

    Args:
        pattern: one {text} and one {mask} with words around them. `||` separates two segments, and {second} is
            the second text of a pair: `{text} It was {mask}.`, `{second}? || {mask}, {text}`.
        partial: mentions that begin or end inside a token: `cover` or `drop`.

    Raises:
        WorkbenchError: the pattern has another form or leaves no room, or the tokenizer reads no single token at its
            mask.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: Count, pattern: Name, partial: Partial = "cover") -> None:
        super().__init__(tokenizer, max_length, partial=partial, split=False)
        self.pattern = pattern
        self.segments, self.placeholder = self._read(pattern)
        words = [each for segment in self.segments for each in (segment.before, segment.after)]
        taken = sum(map(len, tokenizer.encode_batch(words))) + SPARE * len(self.segments)
        self.room = self.capacity - taken
        if self.room < len(self.segments):
            raise WorkbenchError(
                f"max_length = {max_length} leaves no room for a text next to the pattern {pattern!r}; allowed: at "
                f"least {max_length - self.room + len(self.segments)}"
            )

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        return super().__call__([self._filled(sample) for sample in samples], draws)

    def _filled(self, sample: Sample) -> Sample:
        """The sample with the pattern's words around its texts, and the stretch of the mask in `mask_spans`."""
        sample_text(sample)
        pair = SECOND in self.pattern
        if pair and not isinstance(sample.get("second"), str):
            raise WorkbenchError(
                f"the pattern {self.pattern!r} has {SECOND}, and the sample {sample.get('key')!r} has no second text; "
                "use a corpus of pairs, or a pattern without it"
            )
        if not pair and sample.get("second"):
            self.dropped[SECOND_UNREAD] += 1
        first_is_second = SECOND in self.pattern.split("||")[0]
        texts = segments_of(swapped(sample) if first_is_second else sample)[: 2 if pair else 1]
        filled = [self._surrounded(*each) for each in zip_longest(self.segments, self._shortened(texts))]
        others = {"text", "spans", "mask_spans", "second", "second_spans", "second_mask_spans", "tags"}
        rest = {name: value for name, value in sample.items() if name not in others}
        return {**rest, **filled[0]} if len(filled) == 1 else with_second({**rest, **filled[0]}, filled[1])

    def _surrounded(self, segment: Segment, text: dict[str, Any] | None) -> dict[str, Any]:
        """A segment of the pattern with its text, if it has one."""
        inner = {"text": ""} if text is None else text
        filled = surrounded(inner, segment.before, segment.after)
        start = segment.place(len(inner["text"]))
        marked = [] if start is None else [[start, start + len(self.placeholder)]]
        return {**filled, "mask_spans": marked}

    def _shortened(self, texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The texts, cut to fit the room next to the pattern."""
        encoded = self.tokenizer.encode_batch([text["text"] for text in texts])
        first, second = len(encoded[0]), len(encoded[-1])
        lost = cut_longer(first, second, self.room) if len(texts) == 2 else (max(0, first - self.room),)
        for number, (text, cut) in enumerate(zip(encoded, lost, strict=True)):
            if cut:
                self.dropped[TRUNCATED] += cut
                kept = text.part(0, len(text) - cut)
                whole = texts[number]
                texts[number] = between(whole, 0, int(kept.ends[-1]) if len(kept) else 0)
                self.dropped[CUT_SPAN] += len(whole.get("spans", ())) - len(texts[number].get("spans", ()))
        return texts

    def _read(self, pattern: str) -> tuple[list[Segment], str]:
        """The segments of a pattern, and the placeholder of its mask."""
        parts = [part.strip() for part in pattern.split("||")]
        slots = [re.findall(r"\{[^{}]*\}", part) for part in parts]
        known = [slot for part in slots for slot in part]
        wrong = len(parts) > 2 or known.count(MASK) != 1 or known.count(TEXT) != 1 or known.count(SECOND) > 1
        wrong = wrong or not {*known} <= {MASK, TEXT, SECOND} or not all(parts)
        wrong = wrong or any({TEXT, SECOND} <= {*found} for found in slots) or not {TEXT, SECOND} & {*slots[0]}
        if wrong:
            raise WorkbenchError(f"pattern: {pattern!r}; {FORM}")
        order = (SECOND, TEXT) if SECOND in slots[0] else (TEXT, SECOND)
        for word in PLACEHOLDERS:
            found = [_segment(*each, word) for each in zip(parts, order, strict=False)]
            if all(self._one_token(segment, word) for segment in found):
                return found, word
        raise WorkbenchError(
            f"pattern: the tokenizer reads no single token at the mask of {pattern!r}; set spaces around {MASK}, as "
            "around a word"
        )

    def _one_token(self, segment: Segment, word: str) -> bool:
        """Whether the tokenizer reads the mask's place as one token of its own."""
        example = "x" if segment.within else ""
        start = segment.place(len(example))
        if start is None:
            return True
        text = self.tokenizer.encode(segment.before + example + segment.after)
        inside = (text.ends > start) & (text.starts < start + len(word)) & (text.ends > text.starts)
        return (
            bool(inside.sum() == 1) and text.ends[inside][0] == start + len(word) and self._begins(text, inside, start)
        )

    @staticmethod
    def _begins(text: Any, inside: Any, start: int) -> bool:
        """Whether the token begins at the place, or with the space before it."""
        return bool(
            text.starts[inside][0] in (start, start - 1) and not text.text[text.starts[inside][0] : start].strip()
        )


def _segment(part: str, slot: str, placeholder: str) -> Segment:
    """A segment of a pattern with a word in place of its mask."""
    before, slotted, after = part.partition(slot)
    mask = None
    for behind, words in enumerate((before, after)):
        if MASK in words:
            mask = bool(behind), words.index(MASK)
    before, after = before.replace(MASK, placeholder), after.replace(MASK, placeholder)
    return Segment(bool(slotted), before, after, mask)

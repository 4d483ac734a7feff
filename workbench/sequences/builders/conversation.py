"""Conversations as chat models read them: each turn behind the name of its speaker; only answers are learned. They may
be about an image (LLaVA, arXiv:2304.08485, section 4.2)."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Sequence as Listing
from typing import Any

import numpy as np

from workbench.core.errors import BadValueError, WorkbenchError, unknown
from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Count, Name, Role, Title
from workbench.sequences.builder import TRUNCATED, Builder, sequence_of
from workbench.sequences.image_stream import QUESTION_ONLY, ImageStream
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Fields, Sample, Sequence
from workbench.text.tokenizer import Encoding, Tokenizer

USER, ANSWERS = "user", "assistant"
PROMPT = "visibility"  # the field of a sample that `Continuation` has arranged as a prompt
CUT_ANSWERS, UNANSWERED = "conversations whose answers were all cut off", "questions without answers"
CHATML = {speaker: f"<|im_start|>{speaker}\n" for speaker in ("system", USER, ANSWERS)}


class ConversationBuilder(Builder):
    """Conversations: of each turn the template of its speaker, its text, and the end token. Each token sees those
    before it. The tokens of answers and their ends are predicted; all others are read alone (`taken`).

    The template's special tokens are found by their names. In the texts of turns such names are plain text, so that no
    text ends its turn. A conversation that is too long is cut at its end; the tokens lost are counted. A text without
    turns is a turn of `user` that is to be answered, as `workbench generate` needs it.

    With an image the `questions` of a record are the turns of one conversation, each with its main answer, where the
    record has no `turns` (LLaVA 1.5, arXiv:2310.03744, appendix A). A question without answers is left out and counted.

    A prompt (a sample with `visibility`, which `Continuation` has arranged) ends with the template of `answers`: a last
    turn of that speaker is left out. It is never cut.

    Args:
        template: by speaker, the text before each of its turns; by default ChatML, as of Qwen and SmolLM2.
        between: the text between two turns.
        answers: the speaker whose turns are predicted.
        begin, end: roles of the special tokens before a conversation and after each turn; None for none.
        image_processor: the component that makes the image stream, by import path with its options; null: no images.
        control: the recipe's; `question-only` removes the image.
        history: whether the questions about an image are one conversation; otherwise each is an item by itself.

    Raises:
        WorkbenchError: the template has no such speaker, or a prompt is too long.
    """

    reads = ("turns",)
    usual_visibility = "causal"
    controls: tuple[str, ...] = ()

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        template: dict[Name, Title] | None = None,
        between: Title = "\n",
        answers: Name = ANSWERS,
        begin: Role | None = None,
        end: Role = "eos",
        image_processor: ComponentSpec | ComponentName | None = None,
        control: Name | None = None,
        history: bool = True,
    ) -> None:
        super().__init__(tokenizer, max_length, begin, end, visibility="causal")
        self.image = ImageStream(image_processor, control)
        self.asks = image_processor is not None
        if self.asks:
            self.reads, self.controls = ("image",), (QUESTION_ONLY,)
            self.unit = None if history else "questions"
        self.answers, self.speakers = answers, template or CHATML
        for speaker in (answers, USER):
            if speaker not in self.speakers:
                raise unknown("speaker", speaker, self.speakers, "the template")
        self._first = {speaker: self._written(text) for speaker, text in self.speakers.items()}
        self._later = {speaker: self._written(between + text) for speaker, text in self.speakers.items()}

    def evaluating(self) -> ConversationBuilder:
        """The same conversations, with images without augmentation."""
        other = copy.copy(self)
        other.image, other.dropped = self.image.evaluating(), Counter()
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        found = [self._turns(sample) for sample in samples]
        encoded = iter(self.tokenizer.encode_batch([text for turns, _ in found for text in turns]))
        sequences = []
        for sample, (turns, speakers) in zip(samples, found, strict=True):
            text = self._cut(self._text([next(encoded) for _ in turns], speakers), sample)
            image = self.image.streams(sample, draws.of(tuple(sample.get("draw", ()))))
            sequences.append(sequence_of(sample, {"text": text, **image}, 0, []))
        return sequences

    def _text(self, turns: Listing[Encoding], speakers: Listing[str]) -> Fields:
        before = [(self._later if number else self._first)[speaker] for number, speaker in enumerate(speakers)]
        segments = [_joined(*pair) for pair in zip(before, turns, strict=True)]
        stream, rows = self.frame.lay(segments, [0] * len(segments))
        stream["taken"][:] = True
        for row, named, segment, speaker in zip(rows, before, segments, speakers, strict=True):
            text = row + len(named)
            stream["special"][row:text] = np.isin(named.ids, self.tokenizer.special_ids)
            if speaker == self.answers:
                stream["taken"][text : row + len(segment) + len(self.frame.end)] = False
        return stream

    def _cut(self, stream: Fields, sample: Sample) -> Fields:
        """
        Raises:
            WorkbenchError: a prompt is too long; cut at its end, it would lose the place of its answer.
        """
        rows = len(stream["taken"]) - (len(self.frame.end) if PROMPT in sample else 0)  # `Continuation` removes the end
        if (lost := rows - self.max_length) <= 0:
            return stream
        if PROMPT in sample:
            raise WorkbenchError(
                f"prompt {sample.get('key', '?')!r} has {rows} tokens with the template, more than max_length = "
                f"{self.max_length} of the run's builder; shorten it"
            )
        self.dropped[TRUNCATED] += lost
        cut = {name: values[: self.max_length] for name, values in stream.items()}
        if cut["taken"].all() and not stream["taken"].all():
            self.dropped[CUT_ANSWERS] += 1
        return cut

    def _turns(self, sample: Sample) -> tuple[list[str], list[str]]:
        """The turns of a sample and their speakers; an empty one of `answers` where a text is to be answered."""
        turns = sample.get("turns")
        if turns is None and "text" in sample and PROMPT in sample:
            return [sample["text"], ""], [USER, self.answers]
        if turns is None and self.asks and sample.get("questions"):
            found = _asked(sample["questions"], self.answers, to_answer=PROMPT in sample)
            if left_out := len(sample["questions"]) - len(found[0]) // 2:
                self.dropped[UNANSWERED] += left_out
            if not found[0]:
                raise missing(sample, "questions", "with an answer")
            return found
        if not turns:
            raise missing(sample, "questions" if self.asks else "turns")
        speakers = sample.get("speakers") or [(USER, self.answers)[number % 2] for number in range(len(turns))]
        others = sorted({*speakers} - self.speakers.keys())
        if others or len(speakers) != len(turns):
            raise BadValueError(
                f"sample {sample.get('key', '?')!r} of corpus {sample.get('corpus', '?')!r}",
                f"it has {len(turns)} turns of the {len(speakers)} speakers {', '.join(speakers)}; allowed: one "
                f"speaker for each turn, of those in the template ({', '.join(self.speakers)})",
                sample.get("draw"),
                "turns of unknown speakers",
            )
        if PROMPT in sample:
            last = len(turns) - (speakers[-1] == self.answers)
            return [*turns[:last], ""], [*speakers[:last], self.answers]
        return list(turns), list(speakers)

    def _written(self, text: str) -> Encoding:
        """The tokens of a text of the template, in which the names of the tokenizer's added tokens are these tokens."""
        added = {token.content: number for number, token in self.tokenizer.backend.get_added_tokens_decoder().items()}
        names = "|".join(map(re.escape, sorted(added, key=len, reverse=True)))
        parts = [part for part in (re.split(f"({names})", text) if names else [text]) if part]
        ids = [[added[part]] if part in added else self.tokenizer.encode(part).ids for part in parts]
        found = np.concatenate([np.zeros(0, np.int64), *ids]).astype(np.int64)
        if len(found) >= self.capacity:
            raise WorkbenchError(f"max_length = {self.max_length} has no room next to the template {text!r}")
        none = np.full(len(found), -1, np.int64)
        return Encoding(found, none, none, none)


def _asked(questions: Listing[dict[str, Any]], answers: str, *, to_answer: bool) -> tuple[list[str], list[str]]:
    """Questions with their answers as turns, and the speakers.

    Args:
        to_answer: whether the last question is a prompt, whose answer is left empty.
    """
    turns: list[str] = []
    for number, question in enumerate(questions, 1):
        given = [str(text) for text in question.get("answers") or () if str(text).strip()]
        if to_answer and number == len(questions):
            turns += [question["question"], ""]
        elif given or question.get("answer"):
            turns += [question["question"], question.get("answer") or Counter(given).most_common(1)[0][0]]
    return turns, [USER, answers] * (len(turns) // 2)


def _joined(named: Encoding, turn: Encoding) -> Encoding:
    """A turn behind the text of its speaker, which has no characters of the turn."""
    ids, pretokens, starts, ends = (np.concatenate(pair) for pair in zip(named.columns, turn.columns, strict=True))
    return Encoding(ids, pretokens, starts, ends, turn.text, turn.segmenter)

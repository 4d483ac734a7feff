"""Conversations as chat models read them: each turn behind the name of its speaker; only answers are learned. They may
be about an image (LLaVA, arXiv:2304.08485, section 4.2)."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as Listing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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

    Between two special tokens templates and turns are tokenized as one text, as chat templates are. A space at the end
    of a template belongs to the turn. The template's special tokens are found by their names. In the texts of turns
    such names are plain text, so that no text ends its turn. A conversation that is too long is cut at its end; the
    tokens lost are counted. A text without turns is a turn of `user` that is to be answered, as `workbench generate`
    needs it.

    With an image the `questions` of a record are the turns of one conversation, each with its main answer, where the
    record has no `turns` (LLaVA 1.5, arXiv:2310.03744, appendix A). A question without answers is left out and counted.

    A prompt (a sample with `visibility`, which `Continuation` has arranged) ends with the template of `answers`: a last
    turn of that speaker is left out. It is never cut.

    Args:
        template: by speaker, the text before each of its turns; by default ChatML, as of Qwen and SmolLM2.
        between: the text between two turns.
        answers: the speaker whose turns are predicted.
        begin, end: roles of the special tokens before a conversation and after a turn; None for no token before it.
        ended: the speakers whose turns have the end token, `answers` among them; null: all.
        image_processor: the component that makes the image stream, by import path with its options; null: no images.
        control: the recipe's; `question-only` removes the image.
        history: whether the questions about an image are one conversation; otherwise each is an item by itself.

    Raises:
        WorkbenchError: the template has no such speaker, answers have no end, or a prompt is too long.
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
        ended: list[Name] | None = None,
    ) -> None:
        super().__init__(tokenizer, max_length, begin, end, visibility="causal")
        self.image = ImageStream(image_processor, control)
        self.asks = image_processor is not None
        if self.asks:
            self.reads, self.controls = ("image",), (QUESTION_ONLY,)
            self.unit = None if history else "questions"
        self.answers, self.speakers = answers, template or CHATML
        self.ended = frozenset(self.speakers if ended is None else ended)
        for speaker in (answers, USER, *self.ended):
            if speaker not in self.speakers:
                raise unknown("speaker", speaker, self.speakers, "the template")
        if answers not in self.ended:
            raise WorkbenchError(f"ended = {', '.join(ended or [])}: allowed: speakers with {answers!r} among them")
        self._first = {speaker: self._written(text) for speaker, text in self.speakers.items()}
        self._later = {speaker: self._written(between + text) for speaker, text in self.speakers.items()}

    def evaluating(self) -> ConversationBuilder:
        """The same conversations, with images without augmentation."""
        other = copy.copy(self)
        other.image, other.dropped = self.image.evaluating(), Counter()
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        found = [self._turns(sample) for sample in samples]
        parts = [self._parts(*turns, prompt=PROMPT in sample) for sample, turns in zip(samples, found, strict=True)]
        encoded = iter(self.tokenizer.encode_batch([part.text for own in parts for part in own if part.text]))
        sequences = []
        for sample, (turns, speakers), own in zip(samples, found, parts, strict=True):
            pieces = [piece for part in own for piece in part.pieces(next(encoded) if part.text else None)]
            text = self._cut(self._text(turns, speakers, pieces), sample)
            image = self.image.streams(sample, draws.of(tuple(sample.get("draw", ()))))
            sequences.append(sequence_of(sample, {"text": text, **image}, 0, []))
        return sequences

    def _parts(self, turns: Listing[str], speakers: Listing[str], *, prompt: bool) -> list[_Part]:
        """The special tokens of the template, and the texts between special tokens."""
        parts = [_Part()]
        for number, (turn, speaker) in enumerate(zip(turns, speakers, strict=True)):
            for piece in (self._later if number else self._first)[speaker]:
                if isinstance(piece, int):
                    parts += [_Part(token=piece, turn=number), _Part()]
                else:
                    parts[-1].append(piece, number, of_turn=False)
            if prompt and number == len(turns) - 1:  # the space before an answer is written with it
                parts[-1].text = parts[-1].text.rstrip(" ")
            parts[-1].append(turn, number, of_turn=True)
            if speaker in self.ended:
                parts.append(_Part())
        return parts

    def _text(self, turns: Listing[str], speakers: Listing[str], pieces: Listing[_Piece]) -> Fields:
        none = _special([])
        named, said = ([none] * len(turns) for _ in range(2))
        for piece in pieces:
            side = said if piece.of_turn else named
            side[piece.turn] = _joined(side[piece.turn], piece.tokens)
        segments = [_joined(*pair) for pair in zip(named, said, strict=True)]
        stream, rows = self.frame.lay(segments, [0] * len(segments))
        stream["taken"][:] = True
        kept = np.ones(len(stream["taken"]), np.bool_)
        for row, before, segment, speaker in zip(rows, named, segments, speakers, strict=True):
            text, end = row + len(before), row + len(segment)
            stream["special"][row:text] = np.isin(before.ids, self.tokenizer.special_ids)
            if speaker == self.answers:
                stream["taken"][text : end + len(self.frame.end)] = False
            kept[end : end + len(self.frame.end)] = speaker in self.ended
        stream = {name: values[kept] for name, values in stream.items()}
        return stream | {name: np.arange(len(stream["taken"])) for name in ("position_ids", "rank")}

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

    def _written(self, text: str) -> list[str | int]:
        """A text of the template, in which the names of the tokenizer's added tokens are these tokens."""
        added = {token.content: number for number, token in self.tokenizer.backend.get_added_tokens_decoder().items()}
        names = "|".join(map(re.escape, sorted(added, key=len, reverse=True)))
        parts = [part for part in (re.split(f"({names})", text) if names else [text]) if part]
        if sum(1 if part in added else len(self.tokenizer.encode(part)) for part in parts) >= self.capacity:
            raise WorkbenchError(f"max_length = {self.max_length} has no room next to the template {text!r}")
        return [added.get(part, part) for part in parts]


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


class _Piece(NamedTuple):
    """Tokens of a turn, or of the template before it."""

    turn: int
    of_turn: bool
    tokens: Encoding


@dataclass
class _Part:
    """A special token of the template, or a text without any: templates and turns.

    Attributes:
        bounds: of each template or turn in the text: its number, whether it is a turn, its tokens' first character,
            its own first character, and its text.
    """

    text: str = ""
    token: int | None = None
    turn: int = 0
    bounds: list[tuple[int, bool, int, int, str]] = field(default_factory=list)

    def append(self, text: str, turn: int, *, of_turn: bool) -> None:
        begin = len(self.text.rstrip(" ")) if of_turn else len(self.text)
        self.bounds.append((turn, of_turn, begin, len(self.text), text))
        self.text += text

    def pieces(self, encoded: Encoding | None) -> Iterator[_Piece]:
        """The tokens by turn; a token across a bound belongs to the one where it ends."""
        if self.token is not None:
            yield _Piece(self.turn, False, _special([self.token]))
        if encoded is None:
            return
        places = np.searchsorted(encoded.ends, [begin for _, _, begin, _, _ in self.bounds], "right").tolist()
        for (turn, of_turn, _, first, text), start, end in zip(
            self.bounds, [0, *places[1:]], [*places[1:], len(encoded)], strict=True
        ):
            own = encoded.part(start, end)
            starts, ends = (np.maximum(column - first, 0) for column in (own.starts, own.ends))
            said = Encoding(own.ids, own.pretokens, starts, ends, text, own.segmenter)
            yield _Piece(turn, of_turn, said if of_turn else _special(own.ids))


def _special(ids: Listing[int] | np.ndarray) -> Encoding:
    """Tokens that have no characters of a turn."""
    none = np.full(len(ids), -1, np.int64)
    return Encoding(np.asarray(ids, np.int64), none, none, none)


def _joined(first: Encoding, second: Encoding) -> Encoding:
    """Tokens behind others, with the text of the second."""
    ids, pretokens, starts, ends = (np.concatenate(pair) for pair in zip(first.columns, second.columns, strict=True))
    return Encoding(ids, pretokens, starts, ends, second.text, second.segmenter)

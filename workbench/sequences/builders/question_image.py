"""A question with its image: [CLS] question [SEP] in the text stream, the image in the image stream.

The answers never enter the text. `Sequence.meta` holds the question's dict (question_id, question, answers, ...) for
the objective or the evaluation that turns answers into labels.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Count, Name
from workbench.sequences.builder import Builder, sequence_of
from workbench.sequences.image_stream import QUESTION_ONLY, ImageStream
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.text_layout import VisibilityAlone
from workbench.text.tokenizer import Tokenizer


class QuestionImageBuilder(Builder):
    """A question with its image: [CLS] question [SEP] in the text stream, the image in the image stream. Each question
    is an item.

    Args:
        image_processor: the component that makes the image stream, by import path with its options; null for questions
            without the image.
        control: the recipe's; `question-only` removes the image.
        visibility: the tokens of the text that each token sees: all (`bidirectional`), those up to itself (`causal`),
            or itself and those after it (`anticausal`).
    """

    unit = "questions"
    controls = (QUESTION_ONLY,)

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        image_processor: ComponentSpec | ComponentName | None,
        control: Name | None = None,
        visibility: VisibilityAlone = "bidirectional",
    ) -> None:
        super().__init__(tokenizer, max_length, visibility=visibility)
        self.image = ImageStream(image_processor, control)

    def evaluating(self) -> QuestionImageBuilder:
        """The same questions, without augmentation."""
        other = copy.copy(self)
        other.image, other.dropped = self.image.evaluating(), Counter()
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        asked = [(s, part, question) for s in samples for part, question in enumerate(_questions(s))]
        encoded = self.tokenizer.encode_batch([question["question"] for _, _, question in asked])
        texts = [self.truncate(tokens, [], self.capacity)[0] for tokens in encoded]
        sequences = []
        laid = self.frame.lay_all(([text], None, None) for text in texts)
        for (sample, part, question), (stream, _) in zip(asked, laid, strict=True):
            rng = draws.of((*tuple(sample.get("draw", ())), part))
            streams = {"text": stream, **self.image.streams(sample, rng)}
            sequences.append(sequence_of(sample, streams, part, [], meta=dict(question)))
        return sequences


def _questions(sample: Sample) -> list[dict[str, Any]]:
    questions = sample.get("questions")
    if not questions:
        raise missing(sample, "questions")
    return list(questions)

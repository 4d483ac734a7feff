"""A question on an image with each of its choices: [CLS] question [SEP] choice [SEP], and the image next to it (VCR's
and A-OKVQA's multiple choice: Zellers et al., CVPR 2019; Schwenk et al., ECCV 2022)."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Annotated, Any

from workbench.core.errors import BadValueError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Count, Name
from workbench.sequences.builder import PairOptions
from workbench.sequences.builders.choices import ChoicesBuilder
from workbench.sequences.image_stream import QUESTION_ONLY, ImageStream
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence
from workbench.text.tokenizer import Tokenizer


class QuestionChoicesBuilder(ChoicesBuilder):
    """A question on an image with each of its choices: [CLS] question [SEP] choice [SEP] and the image (VCR, Zellers et
    al., CVPR 2019; A-OKVQA, Schwenk et al., ECCV 2022). It makes a sequence for each of the sample's `choices`, as
    `choices` does.

    Args:
        image_processor: the component that makes the image stream, by import path with its options; null for no image.
        control: the recipe's; `question-only` removes the image.
        options: those of builders of pairs, `workbench.sequences.builder.PairOptions`.
    """

    reads = ("questions", "choices")
    controls = (QUESTION_ONLY,)

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        image_processor: ComponentSpec | ComponentName | None = None,
        control: Name | None = None,
        **options: Annotated[Any, PairOptions],
    ) -> None:
        super().__init__(tokenizer, max_length, **options)
        self.image = ImageStream(image_processor, control)

    def evaluating(self) -> QuestionChoicesBuilder:
        """The same questions, without augmentation."""
        other = copy.copy(self)
        other.image, other.dropped = self.image.evaluating(), Counter()
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        """The sequences; all choices of a question have the same stream of its image, augmented once."""
        for sample in samples:
            if not sample.get("questions"):
                raise missing(sample, "questions")
            if len(sample["questions"]) > 1:
                where = f"sample {sample.get('key', '?')!r} of corpus {sample.get('corpus', '?')!r}"
                detail = f"it has {len(sample['questions'])} questions and one list of choices; each needs a record"
                raise BadValueError(where, detail, sample.get("draw"), "several questions")
        asked = [{**sample, "text": sample["questions"][0]["question"]} for sample in samples]
        sequences = super().__call__(asked, draws)
        made = iter(sequences)
        for sample in samples:
            seen = self.image.streams(sample, draws.of(tuple(sample.get("draw", ()))))
            for _ in sample["choices"]:
                next(made).streams.update({name: dict(fields) for name, fields in seen.items()})
        return sequences

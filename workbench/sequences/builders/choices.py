"""A text with each of its choices: [CLS] text [SEP] question choice [SEP], for multiple choice (BERT, arXiv:1810.04805,
section 4.4; RoBERTa, arXiv:1907.11692, section 5.3)."""

from __future__ import annotations

from typing import Annotated, Any

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count
from workbench.sequences.builder import PairOptions
from workbench.sequences.builders.sentence_pair import SentencePairBuilder
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence
from workbench.text.tokenizer import Tokenizer

CHOICE = "choice"


class ChoicesBuilder(SentencePairBuilder):
    """A text with each of its choices: [CLS] text [SEP] question choice [SEP], for multiple choice (BERT,
    arXiv:1810.04805, section 4.4). It makes a sequence for each of the sample's `choices`. The question is the sample's
    `second`, if it has one.

    A pair that is too long is cut as by `sentence_pair`: the longer segment first, the choice at its end. Entities
    linked to the choices (`choice_spans`) are included. The sequences of a sample are a group, each with the role
    `choice`. `Sequence.meta` has the number of the `choice`, and the `answer`, where the sample has one.

    Args:
        options: those of builders of pairs, `workbench.sequences.builder.PairOptions`.
    """

    reads: tuple[str, ...] = ("choices",)

    def __init__(self, tokenizer: Tokenizer, max_length: Count, **options: Annotated[Any, PairOptions]) -> None:
        super().__init__(tokenizer, max_length, split=False, **options)

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        for sample in samples:
            if not sample.get("choices"):
                raise missing(sample, "choices")
        pairs = [pair for sample in samples for pair in _pairs(sample)]
        sequences = super().__call__(pairs, draws)
        for sequence, pair in zip(sequences, pairs, strict=True):
            sequence.role, sequence.group = CHOICE, sequence.group[:-1]
            sequence.meta |= {name: pair[name] for name in ("choice", "answer") if name in pair}
        return sequences


def _pairs(sample: Sample) -> list[dict[str, Any]]:
    """The text with each choice behind the question."""
    question = f"{sample['second']} " if sample.get("second") else ""
    spans = sample.get("choice_spans") or [[] for _ in sample["choices"]]
    draw = tuple(sample.get("draw", ()))
    return [
        {
            **sample,
            "draw": (*draw, number),
            "choice": number,
            "second": question + choice,
            "second_spans": [
                *sample.get("second_spans", ()),
                *([start + len(question), end + len(question), *more] for start, end, *more in linked),
            ],
        }
        for number, (choice, linked) in enumerate(zip(sample["choices"], spans, strict=True))
    ]

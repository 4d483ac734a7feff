"""What several tasks do with samples that are asked about, and with the lines of their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sample


def paired(sample: Sample, predicting: Any) -> Sample:
    """A sample with the second text of the command line: an image's caption."""
    if predicting.second is None:
        return sample
    return {**sample, **({"captions": [predicting.second]} if "image" in sample else {"second": predicting.second})}


def questioned(sample: Sample, predicting: Any, *, needed: bool = False) -> Sample:
    """A sample with the question of the command line.

    Raises:
        WorkbenchError: one is needed, and neither has any.
    """
    question = predicting.question
    if question is None and needed and not sample.get("second"):
        raise WorkbenchError(
            f"input {sample['key']!r} has no question; say --question TEXT, or give records with a question in `second`"
        )
    if question is None:
        return sample
    if "image" in sample:
        return {**sample, "questions": [{"question_id": str(sample["key"]), "question": question, "answers": []}]}
    return {**sample, "second": question}


def place_of(sample: Sample, field: str, given: str | None) -> tuple[int, int]:
    """The place of a mention in a sample's text [start, end]: of the words of the command line, or of the sample's
    own `field`, as words or as a place.

    Raises:
        WorkbenchError: neither has one, or the text has no such words.
    """
    words = given if given is not None else sample.get(field)
    if words is None:
        raise WorkbenchError(
            f"input {sample['key']!r} has no {field}; say --{field} WORDS, or give records with its place in characters"
        )
    if not isinstance(words, str):
        return int(words[0]), int(words[1])
    start = sample["text"].find(words)
    if start < 0 or not words:
        raise WorkbenchError(f"input {sample['key']!r}: its text has no {words!r}, which is to be its {field}")
    return start, start + len(words)


def with_probabilities(line: dict[str, Any]) -> dict[str, Any]:
    """A line of `predictions` without the right answer, and with probabilities in place of the classes' logits."""
    names = list(line["scores"])
    shares = probable([line["scores"][name] for name in names])
    return {
        "key": line["key"],
        "prediction": line["prediction"],
        "probabilities": dict(zip(names, shares, strict=True)),
    }


def probable(scores: Sequence[float]) -> list[float]:
    """The softmax of logits."""
    powers = np.exp(np.asarray(scores) - max(scores))
    return [float(share) for share in powers / powers.sum()]

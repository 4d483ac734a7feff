"""Helpers of the formats of visual questions: the form of a question, and all questions of an image as one record."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from pipelines.readers.reader import MalformedError, check_pairs, require

OPTIONAL = ("answer", "answer_type", "question_type", "answerable", "rationales")
Image = TypeVar("Image", bound=Hashable)


def question_of(row: dict[str, Any], where: str) -> dict[str, Any]:
    """One element of a sample's `questions`; answers may be strings or the official `{answer: ...}` objects.

    Raises:
        MalformedError: a field is missing or of another type, or see `with_blanks`.
    """
    answers = require(row, "answers", list, where) if "answers" in row else [require(row, "answer", str, where)]
    answers = [a.get("answer") if isinstance(a, dict) else a for a in answers]
    answers = ["" if answer is None else answer for answer in answers]
    if not all(isinstance(answer, str) for answer in answers):
        raise MalformedError("answers must be strings, or objects with the string 'answer'", where)
    check_pairs(answers, where)
    if row.get("answer") is not None:
        require(row, "answer", str, where)
    question = {
        "question_id": require(row, "question_id", (int, str), where),
        "question": require(row, "question", str, where),
        "answers": answers,
    }
    return with_blanks(question | {name: row[name] for name in OPTIONAL if name in row}, where)


def with_blanks(question: dict[str, Any], where: str) -> dict[str, Any]:
    """The question with its blank answers. An annotator without an answer counts: the accuracy of the others' answers
    depends on the number of annotators. Test sets have no answers.

    Raises:
        MalformedError: the question is blank, or all of its answers are.
    """
    if not question["question"].strip():
        raise MalformedError("a blank question", where)
    answers = ["" if answer is None else answer for answer in question["answers"]]
    if answers and all(map(_is_blank, answers)):
        raise MalformedError("a question whose answers are all blank", where)
    lacking = {"answer"} if "answer" in question and _is_blank(question["answer"]) else set()
    kept = {name: value for name, value in question.items() if name not in lacking}
    return {**kept, "answers": answers}


def _is_blank(answer: Any) -> bool:
    text = answer.get("answer") if isinstance(answer, dict) else answer
    return text is None or (isinstance(text, str) and not text.strip())


class Identifiers:
    """The ids of the questions of all inputs: predictions and scores refer to them, so they must be unique."""

    def __init__(self) -> None:
        self.places: dict[int | str, str] = {}

    def take(self, question: dict[str, Any], where: str) -> None:
        """
        Raises:
            MalformedError: an earlier question has this id.
        """
        identifier = question["question_id"]
        if identifier in self.places:
            found = f"{identifier!r}, see {self.places[identifier]}"
            raise MalformedError("a question_id that an earlier question has", where, found)
        self.places[identifier] = where


class ImageQuestions(Generic[Image]):
    """The questions of each image; images in the order of their first questions."""

    def __init__(self) -> None:
        self.images: dict[Image, tuple[list[dict[str, Any]], str]] = {}
        self.identifiers = Identifiers()

    def add(self, image: Image, question: dict[str, Any], where: str) -> None:
        """Raises MalformedError if an earlier question has its id."""
        self.identifiers.take(question, where)
        self.images.setdefault(image, ([], where))[0].append(question)

    def __iter__(self) -> Iterator[tuple[Image, list[dict[str, Any]], str]]:
        """(image, its questions, place of the first one)."""
        for image, (questions, where) in self.images.items():
            yield image, questions, where

"""The answer vocabulary of a VQA classifier, and its soft labels (Anderson et al., CVPR 2018; UNITER, LXMERT, ViLT)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vision.metrics.anls import best_similarities
from vision.metrics.vqa_accuracy import FORMS, Form, accuracy, can_score, major_answer, match_score
from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.drafts import sha256_of, write_text
from workbench.core.files.text_files import parse_json

KIND = "answers"
COUNTS = {100_000: 9, 1_000: 3}
"""The default minimum frequency of an answer, by the least number of questions; below all of these it is 1."""


def usual_count(questions: int) -> int:
    """The default minimum frequency of an answer in a set of this many questions. VQA v2's published 9 is that of
    658,111 questions; of 2,000 it would drop most answers that are no `yes`, `no` or number."""
    return next((count for least, count in COUNTS.items() if questions >= least), 1)


@dataclass(frozen=True)
class AnswerVocabulary:
    """The answers of a classifier, in a normal form (`vision.metrics.vqa_accuracy.FORMS`); a row is a class."""

    answers: tuple[str, ...]
    form: Form = "vqa"

    @classmethod
    def build(
        cls, questions: Iterable[Mapping[str, Any]], min_count: int | None = None, form: Form = "vqa"
    ) -> AnswerVocabulary:
        """The main answers of at least `min_count` questions (default: `usual_count`), most frequent first.

        The published VQA v2 vocabulary (3,129 answers) is that of train + val with min_count 9. It has an empty one,
        the normal form of "a"; here an answer with an empty normal form is dropped. Questions without answers are
        skipped.

        Raises:
            WorkbenchError: no answer is that frequent.
        """
        main = [major_answer(question, form) for question in questions if question["answers"]]
        counts = Counter(filter(None, main))
        min_count = usual_count(len(main)) if min_count is None else min_count
        kept = sorted((a for a, n in counts.items() if n >= min_count), key=lambda a: (-counts[a], a))
        if not kept:
            most = counts.most_common(1)
            found = f"the most frequent, {most[0][0]!r}, has {most[0][1]}" if most else "there are no questions"
            raise WorkbenchError(f"no answer is the main one of {min_count} questions ({found}); lower min_count")
        return cls(tuple(kept), form)

    @classmethod
    def load(cls, path: Path) -> AnswerVocabulary:
        """Read a file of `save`, or a published one: a list, or an object of answers with their classes. The run
        records it as an input.

        Raises:
            WorkbenchError: the file is not a JSON list of different strings, nor an object of classes from 0 on.
        """
        make = f"`workbench prepare answers CORPUS --output {quoted(path)}` builds one from a corpus of questions"
        if not path.is_file():
            raise WorkbenchError(f"there is no file {path} with an answer vocabulary; {make}")
        try:
            answers = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise WorkbenchError(f"{path}: cannot read the answer vocabulary: {error}; {make}") from error
        if isinstance(answers, dict) and sorted(answers.values(), key=str) == sorted(range(len(answers)), key=str):
            answers = sorted(answers, key=answers.__getitem__)
        if not isinstance(answers, list) or not all(isinstance(a, str) for a in answers):
            raise WorkbenchError(
                f"{path}: an answer vocabulary is a JSON list of strings, or an object of strings with their classes, "
                "0, 1, ..."
            )
        if len(set(answers)) != len(answers):
            twice = next(a for a, n in Counter(answers).items() if n > 1)
            raise WorkbenchError(f"{path}: the answer {twice!r} occurs twice; an answer is one class")
        note(KIND, path, sha256_of(path))
        return cls(tuple(answers))

    def without_blanks(self) -> AnswerVocabulary:
        """The visible answers, for a new classifier: the published lists of VQA v2 hold an empty one."""
        return AnswerVocabulary(tuple(answer for answer in self.answers if answer.strip()), self.form)

    def save(self, path: Path) -> None:
        """Write the answers as a JSON list."""
        write_text(path, json.dumps(self.answers, ensure_ascii=False, indent=0) + "\n")

    def __len__(self) -> int:
        return len(self.answers)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Answer -> class."""
        return {answer: row for row, answer in enumerate(self.answers)}

    def labels(
        self, answers: Iterable[str | Mapping[str, Any]], *, all_right: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Classes [n] int64 and soft scores [n] float32 in (0, 1] of a question's answers (ten: .3, .6, .9, 1).

        With `all_right` the answers are a set of right ones (DAQUAR), not those of annotators: each scores 1. Answers
        outside the vocabulary have no class, so a question may have no label at all.
        """
        texts = [FORMS[self.form](a if isinstance(a, str) else a["answer"]) for a in answers]
        counts = Counter(text for text in texts if text in self.rows)
        found = {self.rows[text]: 1.0 if all_right else match_score(n, len(texts)) for text, n in counts.items()}
        classes = np.array(sorted(found), np.int64)
        return classes, np.array([found[c] for c in sorted(found)], np.float32)

    def targets(self, answers: Iterable[str | Mapping[str, Any]], *, all_right: bool = False) -> np.ndarray:
        """Soft labels of one question as a dense vector [answers] float32, for binary cross-entropy."""
        dense = np.zeros(len(self), np.float32)
        classes, scores = self.labels(answers, all_right=all_right)
        dense[classes] = scores
        return dense

    def frequencies(self, questions: Sequence[Mapping[str, Any]], *, all_right: bool = False) -> list[float]:
        """The mean score of each answer over questions, with half a question added, so that none is 0 or 1."""
        total = np.full(len(self), 0.5)
        for question in questions:
            classes, scores = self.labels(question["answers"], all_right=all_right)
            total[classes] += scores
        return [float(f"{share:.4g}") for share in total / (len(questions) + 1)]

    def ceiling(self, questions: Iterable[Mapping[str, Any]], variant: str) -> float:
        """The accuracy (per cent) of the best classifier with this vocabulary, by the metric's own variant. Questions
        that the variant excludes do not count."""
        return 100 * float(np.mean([self._best(q["answers"], variant) for q in questions if can_score(q, variant)]))

    def _best(self, answers: Sequence[str | Mapping[str, Any]], variant: str) -> float:
        """The accuracy of the best answer of the vocabulary; 0 if no annotator gave one of them."""
        if variant == "anls":  # similar answers score, too
            return float(
                best_similarities(self.answers, [a if isinstance(a, str) else a["answer"] for a in answers]).max()
            )
        given = {FORMS[self.form](answer if isinstance(answer, str) else answer["answer"]) for answer in answers}
        return max((accuracy(answer, answers, variant) for answer in given & self.rows.keys()), default=0.0)

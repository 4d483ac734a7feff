"""VQA accuracy (Antol et al., ICCV 2015; Goyal et al., CVPR 2017), by the rules of the official evaluation script.

A prediction's accuracy is the mean over the annotators of min(1, matches among the *other* annotators / 3), so with ten
answers m matches give 0, .3, .6, .9 or 1. The result names its variant:

    official_2015     answers and prediction are normalised only if the annotators do not all agree literally
    early_script      the script's first versions: the prediction is always normalised, of answers that differ the
                      punctuation alone (so that "two" is never met, nor "a dog"). The challenge server's repositories
                      (Cloud-CV) do so too, with other rules of punctuation
    always_normalise  both are always normalised, as several later scorers do
    single_answer     questions with one answer, or a few that are all right: normalised equality with one of them (the
                      rule above needs several annotators for every question)
    anls              text that is read in images (ST-VQA, DocVQA): `vision.metrics.anls`, not an accuracy

A blank answer is that of an annotator who gave none: it matches no visible answer, and counts among the ten. A question
with a single answer has no other annotators: the first three rules exclude it, and `VqaResult` lists it.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from vision.metrics.anls import plain, similarity
from workbench.core.errors import WorkbenchError, unknown

Variant = Literal["official_2015", "early_script", "always_normalise", "single_answer", "anls"]
VARIANTS: tuple[str, ...] = get_args(Variant)
RULE = "vqa_variant"
"""Key of `Manifest.about`: the rule that scores the corpus's answers."""
EACH_RIGHT = ("single_answer", "anls")
"""The rules for answers that are not annotators': each answer of a question is right."""
Form = Literal["vqa", "plain"]
Answer = str | Mapping[str, Any]

_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_DIGIT_COMMA = re.compile(r"\d,\d")
_PERIOD = re.compile(r"\.(?!\d)")  # the official look-behind is malformed and never applies
_MAX_PERIODS = 32  # the official script passes re.UNICODE (32) where re.sub takes a count
_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {"none": "0", **{word: str(n) for n, word in enumerate(_COUNTED)}}
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass
class VqaResult:
    """Accuracies in per cent: overall, per answer type, per question type; `accuracies` per question in 0..1.

    `left_out` are the ids of the questions that the rule cannot score.
    """

    variant: str
    overall: float
    per_answer_type: dict[str, float]
    per_question_type: dict[str, float]
    accuracies: dict[Any, float] = field(repr=False)
    left_out: list[Any] = field(default_factory=list)

    def numbers(self) -> dict[str, float]:
        """Flat numbers for a result file: `accuracy`, `accuracy/answer_type/yes/no`, ..., or `anls`, ..."""
        name = measure_of(self.variant)
        flat = {name: self.overall}
        flat |= {f"{name}/answer_type/{kind}": value for kind, value in self.per_answer_type.items()}
        return flat | {f"{name}/question_type/{kind}": value for kind, value in self.per_question_type.items()}


def evaluate_vqa(
    predictions: Mapping[Any, str], questions: Iterable[Mapping[str, Any]], variant: str | None = None
) -> VqaResult:
    """Score predicted answers (by question id).

    Args:
        questions: with `question_id`, `answers` (strings, or the official entries with `answer`, `answer_id`, ...) and,
            where known, `answer_type` and `question_type`.
        variant: by default that of `variant_of`.

    Raises:
        WorkbenchError: unknown variant, no questions, predictions and questions that do not match one to one, or
            one-answer questions alone under a rule that needs several.
    """
    asked = {question["question_id"]: question for question in questions}
    _same_questions(predictions, asked)
    variant = _variant(variant, asked)
    left_out = [name for name, question in asked.items() if not can_score(question, variant)]
    asked = {name: question for name, question in asked.items() if can_score(question, variant)}
    accuracies = {name: accuracy(predictions[name], q["answers"], variant) for name, q in asked.items()}
    return VqaResult(
        variant,
        _percent(accuracies.values()),
        _grouped(accuracies, asked, "answer_type"),
        _grouped(accuracies, asked, "question_type"),
        accuracies,
        left_out,
    )


def accuracy(prediction: str, answers: Sequence[Answer], variant: str = "official_2015") -> float:
    """Accuracy of one prediction, in 0..1.

    Plain strings count as one annotator each. Official entries (mappings) are compared as a whole, as the script
    does: where they carry no `answer_id`, equal entries are not distinguished and the score drops.
    """
    raw = [a if isinstance(a, str) else a["answer"] for a in answers]
    if variant in EACH_RIGHT:
        raw = [text for text in raw if text.strip()]
    if variant == "anls":
        return similarity(prediction, raw)
    texts, prediction = compared(raw, prediction, variant)
    if variant == "single_answer":
        return float(prediction in texts)
    entries: list[Any] = [
        (i, text) if isinstance(answer, str) else {**answer, "answer": text}
        for i, (answer, text) in enumerate(zip(answers, texts, strict=True))
    ]
    total = 0.0
    for entry in entries:
        others = [text for other, text in zip(entries, texts, strict=True) if other != entry]
        total += min(1.0, others.count(prediction) / 3)
    return total / len(entries)


def compared(answers: list[str], prediction: str, variant: str) -> tuple[list[str], str]:
    """The compared forms of answers and prediction."""
    if variant == "early_script":
        return [*map(without_marks, answers)] if len(set(answers)) > 1 else answers, normalise(prediction)
    answers = [_stripped(answer) for answer in answers]
    if variant == "official_2015" and len(set(answers)) == 1:
        return answers, _stripped(prediction)
    return [normalise(answer) for answer in answers], normalise(prediction)


def variant_of(questions: Iterable[Mapping[str, Any]]) -> Variant:
    """The rule of a set: if at least half of the questions have a single answer, there were no several annotators, and
    the answers of the other questions are all right."""
    sizes = [len(question["answers"]) for question in questions]
    return "single_answer" if sizes and 2 * sizes.count(1) >= len(sizes) else "official_2015"


def can_score(question: Mapping[str, Any], variant: str) -> bool:
    """Whether the rule can score the question: rules that compare annotators need at least two."""
    return variant in EACH_RIGHT or len(question["answers"]) > 1


def measure_of(variant: str) -> str:
    """The name of a variant's number."""
    return "anls" if variant == "anls" else "accuracy"


def match_score(matches: int, answers: int) -> float:
    """The accuracy of an answer that `matches` of `answers` annotators gave (10: 0, .3, .6, .9, 1; 1: 0 or 1)."""
    if answers == 1:
        return float(matches == 1)
    inside = matches * min(1.0, (matches - 1) / 3) if matches else 0.0
    return (inside + (answers - matches) * min(1.0, matches / 3)) / answers


@cache
def normalise(text: str) -> str:
    """The official normal form: punctuation, then number words, articles and contractions."""
    return _words(without_marks(_stripped(text)))


def majority_baseline(
    train: Iterable[Mapping[str, Any]],
    questions: Iterable[Mapping[str, Any]],
    by: str | None = None,
    form: Form = "vqa",
) -> dict[Any, str]:
    """Predictions of the most frequent training answer, overall or per value of the field `by` (`question_type`)."""
    overall: Counter[str] = Counter()
    groups: dict[Any, Counter[str]] = defaultdict(Counter)
    for question in train:
        answer = major_answer(question, form)
        overall[answer] += 1
        if by:
            groups[question.get(by)][answer] += 1
    if not overall:
        raise WorkbenchError("the majority baseline needs training questions; found none")
    best = {group: _most_frequent(counts) for group, counts in groups.items()}
    default = _most_frequent(overall)
    return {q["question_id"]: best.get(q.get(by), default) if by else default for q in questions}


def major_answer(question: Mapping[str, Any], form: Form = "vqa") -> str:
    """The normalised main answer of a question: its `answer`, else the most frequent (the first of equals).

    A blank answer is used only if there is no other.
    """
    given = question.get("answer") or ""
    if not given.strip():
        texts = [a if isinstance(a, str) else a["answer"] for a in question["answers"]]
        given = Counter([text for text in texts if text.strip()] or texts).most_common(1)[0][0]
    return FORMS[form](given)


FORMS: dict[Form, Callable[[str], str]] = {"vqa": normalise, "plain": plain}
"""The normal forms of answers: VQA's removes punctuation and articles, which are part of text in an image."""


def form_of(variant: str) -> Form:
    """The normal form in which a variant compares answers."""
    return "plain" if variant == "anls" else "vqa"


@cache
def contractions() -> dict[str, str]:
    """The script's closed list of words without apostrophe, quirks included ("somebody'd" -> "somebodyd")."""
    text = resources.files("vision.metrics").joinpath("vqa_contractions.json").read_text(encoding="utf-8")
    table: dict[str, str] = json.loads(text)
    return table


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda answer: (-counts[answer], answer))


def _stripped(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def without_marks(text: str) -> str:
    """Removes marks next to a space (or if any digit,digit occurs), else puts a space. Tests use the original."""
    result = text
    number = _DIGIT_COMMA.search(text) is not None
    for mark in _MARKS:
        gone = number or mark + " " in text or " " + mark in text
        result = result.replace(mark, "" if gone else " ")
    return _PERIOD.sub("", result, count=_MAX_PERIODS)


def _words(text: str) -> str:
    words = (_NUMBERS.get(word, word) for word in text.lower().split())
    return " ".join(contractions().get(word, word) for word in words if word not in _ARTICLES)


def _same_questions(predictions: Mapping[Any, str], asked: Mapping[Any, Any]) -> None:
    if not asked:
        raise WorkbenchError("there are no questions to score")
    missing, extra = asked.keys() - predictions.keys(), predictions.keys() - asked.keys()
    if missing or extra:
        examples = ", ".join(map(repr, sorted(missing or extra, key=str)[:3]))
        raise WorkbenchError(
            f"predictions and questions differ: {len(missing)} questions without a prediction, {len(extra)} "
            f"predictions without a question (for example {examples}); every question needs exactly one answer"
        )


def _variant(variant: str | None, asked: Mapping[Any, Mapping[str, Any]]) -> str:
    sizes = {len(question["answers"]) for question in asked.values()}
    if 0 in sizes:
        empty = next(name for name, question in asked.items() if not question["answers"])
        raise WorkbenchError(f"question {empty!r} has no answers: it cannot be scored; leave it out")
    variant = variant or variant_of(asked.values())
    if variant not in VARIANTS:
        raise unknown("VQA variant", variant, VARIANTS)
    if variant not in EACH_RIGHT and sizes == {1}:
        raise WorkbenchError(
            f"variant {variant!r} compares each annotator with the others, but all questions have one answer only; "
            "score them with variant single_answer (--variant), the default for such a set"
        )
    return variant


def _grouped(accuracies: Mapping[Any, float], asked: Mapping[Any, Mapping[str, Any]], by: str) -> dict[str, float]:
    groups: dict[str, list[float]] = defaultdict(list)
    for name, value in accuracies.items():
        if asked[name].get(by) is not None:
            groups[asked[name][by]].append(value)
    return {group: _percent(values) for group, values in sorted(groups.items())}


def _percent(values: Iterable[float]) -> float:
    values = list(values)
    return 100 * sum(values) / len(values)

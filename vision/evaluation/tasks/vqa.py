"""Visual question answering: classification over an answer vocabulary, accuracy by the official rules.

Fine-tuning is classification over the answers of the training set (LXMERT: lr 5e-5, batches of 32, 4 epochs; UNITER:
lr 8e-5, batches of about 10,000 tokens), with soft labels if questions have several annotators. Images are encoded as
in the run's pretraining. A decoder that reads images and questions as conversations (LLaVA) needs no fine-tuning: it
writes its answers, which are scored by the same rules.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vision.answers.answer_vocabulary import AnswerVocabulary
from vision.evaluation.task_options import VqaPredicting, VqaScoring, VqaTuning
from vision.evaluation.vqa.answer_predictions import (
    Answering,
    answer,
    examples,
    failures,
    lines_of,
    predict,
    questions_of,
    vocabulary_of,
    write_gqa_predictions,
    write_predictions,
)
from vision.evaluation.vqa.answer_scores import BOUNDS, Scorer, baselines
from vision.evaluation.vqa.word_attention import draw_question
from vision.evaluation.vqa.written_answers import generator_of, write_answers, writing_run
from vision.metrics.vqa_accuracy import EACH_RIGHT, RULE, VARIANTS, Form, VqaResult, form_of, variant_of
from vision.objectives._comparing import MediaContrast
from vision.objectives.answers import Answers
from workbench.components.building import find
from workbench.core.errors import WorkbenchError, unknown
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.asked import questioned
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.image_sequences import image_sequence, image_task
from workbench.evaluation.scoring.result import Result
from workbench.recipe.spec import Recipe
from workbench.runs.folder import trust_run
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)


MOVEMENT = 0.05
"""1,000 steps at a rate of 5e-5. The published 4 epochs of VQA v2 are more than 50,000."""
SERVER = ".json"
"""Suffix of a file for VQA's test server."""


class Vqa(DownstreamTask[VqaTuning, VqaScoring]):
    """The downstream task: answers to questions about images, compared with the majority answer and upper bounds."""

    tuning = VqaTuning
    scoring = VqaScoring
    predicting = VqaPredicting
    objective = Answers
    gathers = True
    panels = ("vision.evaluation.task_panels:answered", "vision.evaluation.task_panels:failed")

    def setup(self, tuning: VqaTuning, base: Recipe) -> Setup:
        trust_run(tuning.run, base, tuning.trust)
        questions = list(questions_of(Corpus.open(tuning.corpus)))
        answered = [question for question in questions if question["answers"]]
        rule = rule_of(Corpus.open(tuning.corpus), answered)
        form = form_of(rule)
        vocabulary, all_right = _covering(tuning, answered, form), rule in EACH_RIGHT
        single = all(len(question["answers"]) == 1 for question in answered)
        objective = {
            "objective": "vision.answers",
            "answers": list(vocabulary.answers),
            "loss": "cross_entropy" if single else "bce",
            "all_right": all_right,
            **({} if single else {"frequencies": vocabulary.frequencies(answered, all_right=all_right)}),
            **({} if form == "vqa" else {"form": form}),
        }
        sequence = image_sequence(base, "question_image", max_length=tuning.max_length)
        common = Setup(sequence, objective, unit="questions", sees=("image",), movement=MOVEMENT)
        if tuning.read == "fused" or (tuning.read is None and _reads_apart(base)):
            return replace(common, objective=objective | {"fused": ["text", "image"]})
        return replace(common, poolers=("text",))

    def check_reads(self, recipe: Recipe) -> None:
        image_task(recipe)

    def chosen(self, loaded: LoadedRun, options: VqaScoring | VqaPredicting) -> EvaluatedRun:
        learned = any(isinstance(each.objective, Answers) for task in loaded.tasks.values() for each in task.objectives)
        writing = None if learned else writing_run(loaded, options.run, options)
        if writing is not None:
            return writing
        opened: EvaluatedRun = super().chosen(loaded, options)
        return opened

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: VqaScoring) -> Result:
        answering = _answering(run, scoring)
        answered = predict(run, corpus, answering, batch_size=scoring.batch_size, limit=scoring.limit)
        if run.world.is_main and scoring.gqa_predictions is not None:
            write_gqa_predictions(scoring.gqa_predictions, answered)
        questions = answered.scorable
        vocabulary, lacking = vocabulary_of(run), len(answered.asked) - len(questions)
        counts = {"images": answered.images, **({} if vocabulary is None else {"answers": len(vocabulary)})}
        if not questions and lacking:
            unscored = _unscored(self.name, scoring, {"questions answered": lacking, **counts})
            unscored.predictions = EvaluationItems(lines_of(answered), {})
            return unscored
        scorer = Scorer(scoring.variant or rule_of(corpus, questions), scoring.wordnet)
        scores = scorer.accuracies(answered.predictions, questions)
        if scoring.variant is None:
            chosen = "named by the corpus" if RULE in corpus.manifest.about else "chosen by the numbers of answers"
            logger.warning("scored with the variant %s, %s (--variant)", scores.variant, chosen)
        counts |= _apart(scores, questions)
        questions = [question for question in questions if question["question_id"] in scores.accuracies]
        alongside = baselines(run, corpus, vocabulary, questions, scorer)
        return Result(
            task=self.name,
            numbers=scorer.numbers(answered.predictions, questions),
            counts={"questions": len(questions), **counts, **({"without answers": lacking} if lacking else {})},
            variant=scores.variant,
            baselines=alongside,
            examples=examples(run.folder, corpus, answered, scores) if run.world.is_main else [],
            failures=failures(run.folder, corpus, answered, scores) if run.world.is_main else [],
            bounds=[name for name in BOUNDS if name in alongside],
            predictions=EvaluationItems(
                lines_of(answered), scorer.tallies(answered.predictions, answered.asked.values(), scores.accuracies)
            ),
        )

    def asked(self, run: EvaluatedRun, sample: Sample, predicting: VqaPredicting) -> Sample:
        found = questioned(sample, predicting)
        if not any(question["question"] for question in found.get("questions", ())):
            raise WorkbenchError(
                f"input {sample['key']!r} is no image with a question; say --question TEXT for an image, or give a "
                "corpus of images with `questions`"
            )
        return found

    def predict(
        self, run: EvaluatedRun, samples: list[Sample], number: int, predicting: VqaPredicting
    ) -> list[dict[str, Any]]:
        """The most probable answer to each question, or the one that the run writes."""
        return [
            {"key": found.key, "question_id": found.meta["question_id"], "question": found.meta["question"]}
            | {"prediction": found.answer, "probability": found.confidence}
            for found in _answering(run, predicting)(samples, number)
        ]

    def write_predictions(self, file: Path, result: Result) -> None:
        """Write the results file of the VQA challenge if the name ends in .json, else lines of JSON."""
        if file.suffix == SERVER:
            write_predictions(file, {line["question_id"]: line["prediction"] for line in result.predictions.lines})
        else:
            super().write_predictions(file, result)

    def draw(self, run: EvaluatedRun, corpus: Corpus, scoring: VqaScoring) -> None:
        draw_question(run, corpus)


def _answering(run: EvaluatedRun, options: VqaScoring | VqaPredicting) -> Answering:
    """How a run answers: by its vocabulary, or by writing."""
    if vocabulary_of(run) is not None:
        return partial(answer, run)
    generator = generator_of(run, options)
    return lambda samples, number: write_answers(generator, samples)


def rule_of(corpus: Corpus, questions: list[dict[str, Any]]) -> str:
    """The variant that the corpus names (DocVQA's: anls), else the one that fits its numbers of answers.

    Raises:
        WorkbenchError: it names an unknown one.
    """
    named = corpus.manifest.about.get(RULE)
    if named is not None and named not in VARIANTS:
        raise unknown(f"{RULE} of corpus {corpus.name!r}", str(named), VARIANTS)
    return named or variant_of(questions)


def _apart(scores: VqaResult, questions: list[dict[str, Any]]) -> dict[str, int]:
    """Counts and logs the questions whose number of answers does not fit the rule."""
    if scores.left_out:
        some = ", ".join(map(repr, scores.left_out[:10]))
        logger.warning(
            "%d of %d questions have a single answer and are not scored: %s compares annotators with each other (%s%s)",
            len(scores.left_out),
            len(questions),
            scores.variant,
            some,
            ", ..." if len(scores.left_out) > 10 else "",
        )
        return {"left out, of a single answer": len(scores.left_out)}
    several = sum(len(question["answers"]) > 1 for question in questions)
    return {"of several answers, each right": several} if scores.variant in EACH_RIGHT and several else {}


def _covering(tuning: VqaTuning, answered: list[dict[str, Any]], form: Form) -> AnswerVocabulary:
    """The vocabulary. Logs the share of questions with an answer in it; the others train nothing.

    Raises:
        WorkbenchError: no question has one.
    """
    vocabulary = _vocabulary(tuning, answered, form)
    found = [len(vocabulary.labels(question["answers"])[0]) > 0 for question in answered]
    covered = sum(found)
    if tuning.answers and answered and not covered:
        raise WorkbenchError(
            f"--answers {tuning.answers}: none of its {len(vocabulary):,} answers belongs to the {len(answered):,} "
            f"questions of {tuning.corpus}; is it the vocabulary of another set?"
        )
    whose = f"in {tuning.answers}" if tuning.answers else f"among the {len(vocabulary):,} of the vocabulary"
    logger.info("%d of %d questions have an answer %s%s", covered, len(answered), whose, _by_type(answered, found))
    return vocabulary


def _by_type(answered: list[dict[str, Any]], found: list[bool]) -> str:
    """The share of the questions of each answer type that are found, in words; "" without types."""
    types: dict[str, list[bool]] = {}
    for question, one in zip(answered, found, strict=True):
        types.setdefault(question.get("answer_type", ""), []).append(one)
    shares = (f"{name} {sum(of) / len(of):.0%}" for name, of in sorted(types.items()) if name)
    return f" ({', '.join(shares)})" if len(types) > 1 else ""


def _reads_apart(recipe: Recipe) -> bool:
    """Whether all objectives of a run read text and image apart: contrasts, and answers of a fused head."""
    stated = [spec for task in recipe.tasks.values() for spec in task.objectives]
    return all(
        spec.get("fused") or (issubclass(find("objective", spec["objective"]), MediaContrast) and not spec.get("apart"))
        for spec in stated
    )


def _vocabulary(tuning: VqaTuning, answered: list[dict[str, Any]], form: Form) -> AnswerVocabulary:
    """
    Raises:
        WorkbenchError: both a vocabulary and corpora to build one from are given, or as `AnswerVocabulary` raises.
    """
    if tuning.answers and tuning.answers_of:
        raise WorkbenchError(
            "--answers names a vocabulary, and --answers-of names corpora to build one from: give one of the two"
        )
    if tuning.answers:
        return replace(AnswerVocabulary.load(tuning.answers).without_blanks(), form=form)
    others = [question for place in tuning.answers_of or () for question in questions_of(Corpus.open(place))]
    return AnswerVocabulary.build([*answered, *others], tuning.min_count, form)


def _unscored(task: str, scoring: VqaScoring, counts: dict[str, int]) -> Result:
    """
    Raises:
        WorkbenchError: no predictions are written either.
    """
    if scoring.predictions is None and scoring.gqa_predictions is None:
        raise WorkbenchError(
            f"none of the questions of {scoring.corpus} has answers to score; write the run's answers "
            "for a test server with --predictions FILE, or --gqa-predictions FILE"
        )
    return Result(task=task, numbers={}, counts=counts, variant="not scored: the corpus has no answers")

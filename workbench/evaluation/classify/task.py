"""Classification of texts and of pairs of texts (sentiment, natural language inference, paraphrase, ...)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import typer

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError, unknown
from workbench.evaluation.inherited import knowledge_steps, text_length
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.options import Scoring, Tuning
from workbench.evaluation.passes import Forward, all_records, forward_pass, sample_pass
from workbench.evaluation.result import Result
from workbench.evaluation.task import DownstreamTask, Setup
from workbench.objectives.classify import Classify, ClassifyHead
from workbench.options.bounds import Count, Name
from workbench.recipe.spec import SequenceSpec
from workbench.runs.folder import read_recipe
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)

LENGTH = 128
EXAMPLES = 12


@dataclass(frozen=True, kw_only=True)
class ClassifyTuning(Tuning):
    """Fine-tune a pretrained run to tell the class of a text, or of a text and its `second`.

    CORPUS holds texts with `labels`: by name the number or the name of a class. The steps that bring in knowledge are
    those of the run's pretraining.

    Examples:

      workbench finetune classify runs/bert corpora/sst2-train --output runs/bert-sst2

      workbench finetune classify runs/bert corpora/reviews --label stars --held-out corpora/reviews-dev --seeds 3
    """

    label: Annotated[
        Name | None, typer.Option(help="Which of the samples' labels; default: the only one that CORPUS has.")
    ] = None
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens of the text; default: 128, or the model's positions if it has fewer.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassifyScoring(Scoring):
    """Accuracy, macro F1 and Matthews correlation, beside the most frequent class of the training set.

    CORPUS holds texts with `labels`, those that RUN was fine-tuned on.

    Example:

      workbench evaluate classify runs/bert-sst2 corpora/sst2-dev
    """


class Classification(DownstreamTask[ClassifyTuning, ClassifyScoring]):
    """One class for a text, or for a pair."""

    tuning = ClassifyTuning
    scoring = ClassifyScoring
    objective = Classify
    panels = ("workbench.evaluation.classify.panel:classified",)

    def setup(self, tuning: ClassifyTuning) -> Setup:
        base = read_recipe(tuning.run)
        corpus = Corpus.open(tuning.corpus)
        label, classes = _classes(corpus, tuning.label)
        builder = {
            "builder": "sentence_pair",
            "split": False,
            "max_length": tuning.max_length or text_length(base, LENGTH),
        }
        objective = {"objective": "classify", "classes": classes, "label": label}
        return Setup(SequenceSpec(builder, steps=knowledge_steps(base)), objective, poolers=("text",))

    def score(self, run: Evaluated, corpus: Corpus, scoring: ClassifyScoring) -> Result:
        objective, found = run.objective.objective, Predictions()
        assert isinstance(objective, Classify)
        passed = sample_pass([corpus], size=scoring.batch_size, unit=None, limit=scoring.limit)
        for forward in forward_pass(run.network, run.task.sequences, passed):
            found.add(run, objective, forward)
        if not found.gold:
            raise WorkbenchError(
                f"corpus {corpus.name!r} has no texts with the label {objective.label!r}; evaluate on one that has"
            )
        names = list(objective.classes)
        shown = zip(found.shown, found.predicted, found.gold, strict=False)
        return Result(
            task=self.name,
            numbers=self.numbers(objective, found.predicted, found.gold, scoring),
            counts={"texts": len(found.gold), "classes": len(names)},
            variant=self.variant(objective, scoring),
            baselines=self._baselines(run, objective, found.gold, scoring),
            examples=[self.example(sample, names[p], names[g]) for sample, p, g in shown],
        )

    def numbers(
        self, objective: Classify, predicted: list[int], gold: list[int], scoring: ClassifyScoring
    ) -> dict[str, float]:
        """The scores of predicted against gold classes: as the objective measures them in held-out passes."""
        return objective.measure({"predicted": torch.tensor(predicted), "gold": torch.tensor(gold)})

    def variant(self, objective: Classify, scoring: ClassifyScoring) -> str:
        """What the numbers depend on beside the predictions."""
        return f"label {objective.label}"

    def example(self, sample: Sample, prediction: str, label: str) -> dict[str, Any]:
        """A text as the panel shows it."""
        return {"text": sample["text"], "second": sample.get("second", ""), "prediction": prediction, "label": label}

    def _baselines(
        self, run: Evaluated, objective: Classify, gold: list[int], scoring: ClassifyScoring
    ) -> dict[str, dict[str, float]]:
        """Always the training set's most frequent class."""
        counts: Counter[str] = Counter()
        try:
            for place in run.task.spec.corpora:
                counts += _counts(all_records(Corpus.open(place)))[objective.label]
        except WorkbenchError as error:
            logger.warning("no majority baseline, since the training set is not at hand: %s", error)
            return {}
        most = min(counts, key=lambda name: (-counts[name], name))
        always = [objective.classes[most]] * len(gold)
        return {f"always {most}": self.numbers(objective, always, gold, scoring)}


class Predictions:
    """Predicted and gold classes of the labelled texts of a corpus, and the first of the texts."""

    def __init__(self) -> None:
        self.predicted: list[int] = []
        self.gold: list[int] = []
        self.shown: list[Sample] = []

    def add(self, run: Evaluated, objective: Classify, forward: Forward) -> None:
        """The texts of one micro-batch; those without a label are left out."""
        head = run.head
        assert isinstance(head, ClassifyHead)
        with torch.inference_mode():
            best = head.logits(run.network, forward.states, forward.batch).argmax(-1).tolist()
        by_key = {str(sample["key"]): sample for sample in forward.samples}
        for sequence, predicted in zip(forward.sequences, best, strict=True):
            gold = objective.row(sequence)
            if gold != -100:
                self.predicted.append(predicted)
                self.gold.append(gold)
                self.shown += [by_key[sequence.key]] if len(self.shown) < EXAMPLES else []


def _classes(corpus: Corpus, label: str | None) -> tuple[str, list[str]]:
    """The label, and its classes in CORPUS: numbers in their order, names sorted.

    Raises:
        WorkbenchError: the corpus has no labels, several and none was chosen, or one class only.
    """
    counts = _counts(all_records(corpus))
    if not counts:
        raise WorkbenchError(
            f"corpus {corpus.name!r} has no labels (it has {', '.join(corpus.manifest.fields)}); prepare texts with "
            '`labels`, by name: {"text": ..., "labels": {"sentiment": "positive"}}'
        )
    if label is None and len(counts) > 1:
        raise WorkbenchError(f"corpus {corpus.name!r} has the labels {', '.join(sorted(counts))}; choose one: --label")
    chosen = label or next(iter(counts))
    if chosen not in counts:
        raise unknown("label", chosen, counts, f"corpus {corpus.name!r}")
    names = list(counts[chosen])
    if len(names) < 2:
        raise WorkbenchError(f"all texts of corpus {corpus.name!r} have {chosen} = {names[0]}; nothing can be learnt")
    numbers = all(name.lstrip("-").isdigit() for name in names)
    return chosen, sorted(names, key=int) if numbers else sorted(names)


def _counts(samples: Iterable[Sample]) -> dict[str, Counter[str]]:
    """By label, how many samples have which class."""
    found: dict[str, Counter[str]] = {}
    for sample in samples:
        for label, value in sample.get("labels", {}).items():
            found.setdefault(label, Counter())[str(value)] += 1
    return found

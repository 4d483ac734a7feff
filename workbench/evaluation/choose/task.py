"""Multiple choice: SWAG, RACE, CommonsenseQA, COPA; or candidates to be ranked, one of them right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import typer

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.inherited import text_sequence
from workbench.evaluation.measured import Made, MeasuredTask
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.options import BatchSize, Epochs, Scoring, Tuning
from workbench.evaluation.passes import all_records
from workbench.evaluation.task import Setup
from workbench.objectives.choose import Choose
from workbench.options.bounds import Count
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample
from workbench.tasks.objective import Objective


@dataclass(frozen=True, kw_only=True)
class ChooseTuning(Tuning):
    """Fine-tune a pretrained run to choose the right one of several texts.

    CORPUS holds texts with `choices` and the number of the right one, `answer`; a question is in `second`. The steps
    that bring in knowledge are those of the run's pretraining.

    Example:

      workbench finetune choose runs/bert corpora/swag-train --held-out corpora/swag-dev
    """

    epochs: Epochs = 3.0
    batch_size: BatchSize = 16
    max_length: Annotated[
        Count | None,
        typer.Option(
            help="Tokens of a text with one choice; default: 128, or fewer where the positions or the steps need it."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ChooseScoring(Scoring):
    """Accuracy of the best choice and mean reciprocal rank of the right one, beside always the first choice.

    CORPUS holds texts with `choices` and `answer`.

    Example:

      workbench evaluate choose runs/bert-choose corpora/swag-dev
    """


class Choosing(MeasuredTask[ChooseTuning, ChooseScoring]):
    """One choice for each text."""

    tuning = ChooseTuning
    scoring = ChooseScoring
    objective: type[Objective] = Choose
    panels = ("workbench.evaluation.choose.panel:chosen",)

    def setup(self, tuning: ChooseTuning, base: Recipe) -> Setup:
        corpus = Corpus.open(tuning.corpus)
        _check_choices(corpus)
        sequence = text_sequence(base, "choices", tuning.max_length)
        return Setup(sequence, {"objective": "choose"}, poolers=("text",))

    def needs(self, objective: Choose) -> str:
        return "texts with `choices` and `answer`"

    def counts(self, objective: Choose, made: Made, samples: Iterable[Sample]) -> dict[str, int]:
        return {"questions": len(made["labels"]), "choices": len(made["scores"])}

    def baselines(self, run: Evaluated, objective: Choose, made: Made, samples: Iterable[Sample]) -> dict[str, Made]:
        """Always the first choice, then the second, ..."""
        order = [-torch.arange(count, dtype=torch.float32) for count in made["choices"].tolist()]
        return {"always the first": {**made, "scores": torch.cat(order)}}

    def example(self, objective: Choose, sample: Sample, made: Made) -> dict[str, Any]:
        told = {"choices": list(sample["choices"]), "prediction": int(made["scores"].argmax())}
        return {"text": sample["text"], "question": sample.get("second", ""), **told, "answer": int(sample["answer"])}


def _check_choices(corpus: Corpus) -> None:
    """Raises WorkbenchError where no record leaves a choice, with the right one told."""
    if any("answer" in sample and len(sample.get("choices", ())) > 1 for sample in all_records(corpus)):
        return
    fields = corpus.manifest.fields
    if "choices" in fields and "answer" in fields:
        raise WorkbenchError(
            f"no record of corpus {corpus.name!r} has an `answer` among two or more `choices`; nothing can be learnt"
        )
    raise WorkbenchError(
        f"corpus {corpus.name!r} has no questions with choices (it has {', '.join(fields)}); prepare texts with "
        '`choices` and `answer`: {"text": "She sat down", "choices": ["to eat", "to fly"], "answer": 0}'
    )

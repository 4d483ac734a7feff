"""Multiple choice, or ranking of candidates: accuracy and mean reciprocal rank.

Multiple choice: SWAG, RACE, CommonsenseQA, COPA, A-OKVQA; or candidates to be ranked, one of them right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import torch

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.text_search import TextVectors
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.scoring.asked import probable, questioned
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_objective
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.image_sequences import image_sequence
from workbench.evaluation.scoring.objective_task import EXAMPLES, GatheredTensors, ObjectiveTask
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.task_options import ChoosePredicting, ChooseScoring, ChooseTuning
from workbench.metrics.ranks import rank_tallies, realistic_rank
from workbench.objectives.contrast import Contrast
from workbench.objectives.multiple_choice import UNKNOWN, MultipleChoice
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.builder import sample_text
from workbench.sequences.sequence import Sample


class MultipleChoiceTask(ObjectiveTask[ChooseTuning, ChooseScoring]):
    """One choice for each text."""

    tuning = ChooseTuning
    scoring = ChooseScoring
    predicting = ChoosePredicting
    objective: type[Objective] = MultipleChoice
    panels = ("workbench.evaluation.task_panels:chosen",)

    def setup(self, tuning: ChooseTuning, base: Recipe) -> Setup:
        corpus = Corpus.open(tuning.corpus)
        _check_choices(corpus)
        if corpus.kind == "image-text":
            sequence = image_sequence(base, "question_choices", max_length=tuning.max_length)
            return Setup(sequence, {"objective": "multiple_choice"}, poolers=("text",), sees=("image",))
        sequence = text_sequence(base, "choices", tuning.max_length)
        return Setup(sequence, {"objective": "multiple_choice"}, poolers=("text",))

    def chosen(self, loaded: LoadedRun, options: Any) -> Any:
        """A run without multiple choice may compare the two sides of a pair: a bi-encoder ranks choices too."""
        heads = [placed.objective for task in loaded.tasks.values() for placed in task.objectives]
        if isinstance(options, ChooseScoring) and not any(isinstance(head, MultipleChoice) for head in heads):
            pairs = [head for head in heads if isinstance(head, Contrast) and head.roles]
            if pairs:
                where: Any = {**options.where, "control": options.control}
                return find_objective(loaded, options.run, Contrast, self.wanted(options), **where)
        return super().chosen(loaded, options)

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: ChooseScoring) -> Result:
        objective: Any = run.objective.objective
        return (
            self._by_vectors(run, corpus, scoring)
            if isinstance(objective, Contrast)
            else super().score(run, corpus, scoring)
        )

    def _by_vectors(self, run: EvaluatedRun, corpus: Corpus, scoring: ChooseScoring) -> Result:
        """Each choice has the product of its vector and the text's."""
        _check_choices(corpus)
        samples = [s for s in islice(corpus, scoring.limit) if "answer" in s and len(s.get("choices", ())) > 1]
        vectors = TextVectors(run.loaded, run.objective.network, run.objective.name, scoring.batch_size)
        counts = torch.tensor([len(sample["choices"]) for sample in samples])
        asked = vectors.of_queries([sample_text(sample) for sample in samples])
        read = vectors.of_documents([choice for sample in samples for choice in sample["choices"]])
        labels = torch.tensor([int(sample["answer"]) for sample in samples])
        scores = (asked.repeat_interleave(counts, dim=0) * read).sum(1)
        made = {"scores": scores, "choices": counts, "labels": labels}
        choosing: Any = MultipleChoice()
        shown = zip(samples[:EXAMPLES], scores.split(counts.tolist()), strict=False)
        return Result(
            task=self.name,
            numbers=choosing.measure(made),
            counts=self.counts(choosing, made, samples),
            variant=f"products of the vectors of {run.objective.name}",
            baselines={n: choosing.measure(of) for n, of in self.baselines(run, choosing, made, samples).items()},
            examples=[self.example(choosing, sample, {"scores": of}) for sample, of in shown],
            predictions=self.predictions(choosing, made, [str(sample["key"]) for sample in samples]),
        )

    def needs(self, objective: MultipleChoice) -> str:
        return "texts, or questions on images, with `choices` and `answer`"

    def counts(self, objective: MultipleChoice, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        return {"questions": len(made["labels"]), "choices": len(made["scores"])}

    def counted(self, objective: MultipleChoice, targets: Mapping[str, Any]) -> int:
        return int((targets["labels"] != UNKNOWN).sum()) if "labels" in targets else 0

    def predictions(self, objective: MultipleChoice, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        """A question an item: its choices' scores, and the rank of the right one."""
        parts, labels = made["scores"].split(made["choices"].tolist()), made["labels"].tolist()
        ranks = [realistic_rank(part.numpy(), gold)[0] for part, gold in zip(parts, labels, strict=True)]
        lines = [
            {"key": key, "gold": gold, "prediction": int(part.argmax()), "scores": part.tolist(), "rank": rank}
            for key, gold, part, rank in zip(keys, labels, parts, ranks, strict=True)
        ]
        return EvaluationItems(
            lines, {name: tally for name, tally in rank_tallies(ranks).items() if name in ("accuracy", "mrr")}
        )

    def asked(self, run: EvaluatedRun, sample: Sample, predicting: Any) -> Sample:
        choices = list(predicting.choice or sample.get("choices", ()))
        if len(choices) < 2:
            raise WorkbenchError(
                f"input {sample['key']!r} has {len(choices)} choices; two or more are needed: --choice TEXT --choice "
                "TEXT, or a record with `choices`"
            )
        own = {"choices": choices} | ({"choice_spans": []} if predicting.choice else {})
        return {**questioned(sample, predicting), **own, "answer": 0}

    def answered(self, objective: MultipleChoice, line: dict[str, Any], sample: Sample) -> dict[str, Any]:
        """With the words of the choice, and the probability of each."""
        chosen = sample["choices"][line["prediction"]]
        own = {"key": line["key"], "prediction": line["prediction"], "choice": chosen}
        return {**own, "probabilities": probable(line["scores"])}

    def baselines(
        self, run: EvaluatedRun, objective: MultipleChoice, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """The baseline: always the first choice, then the second, ..."""
        order = [-torch.arange(count, dtype=torch.float32) for count in made["choices"].tolist()]
        return {"always the first": {**made, "scores": torch.cat(order)}}

    def example(self, objective: MultipleChoice, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        answer = {"choices": list(sample["choices"]), "prediction": int(made["scores"].argmax())}
        text = sample["text"] if "text" in sample else sample["questions"][0]["question"]
        return {"text": text, "question": sample.get("second", ""), **answer, "answer": int(sample["answer"])}


def _check_choices(corpus: Corpus) -> None:
    """Raises WorkbenchError if no record has two or more choices and the right `answer`."""
    if any("answer" in sample and len(sample.get("choices", ())) > 1 for sample in corpus):
        return
    fields = corpus.manifest.fields
    if "choices" in fields and "answer" in fields:
        raise WorkbenchError(
            f"no record of corpus {corpus.name!r} has an `answer` among two or more `choices`; nothing can be learned"
        )
    raise WorkbenchError(
        f"corpus {corpus.name!r} has no questions with choices (it has {', '.join(fields)}); prepare texts with "
        '`choices` and `answer`: {"text": "She sat down", "choices": ["to eat", "to fly"], "answer": 0}'
    )

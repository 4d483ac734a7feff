"""Entity disambiguation: a model with a linker selects the candidate of each mention.

The mentions and their candidates are given, and the model scores the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from kg.evaluation.task_options import DisambiguationScoring
from kg.objectives.entity_linking import EntityLinking, by_mention
from kg.sequences.table_transform import WITHOUT_VECTOR
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_fitting_objective, texts_alone
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.objective_task import GatheredTensors, ObjectiveTask
from workbench.interop.run_or_checkpoint import load
from workbench.metrics.ranks import realistic_rank
from workbench.metrics.tallies import Tally
from workbench.pretraining.objective import Objective
from workbench.pretraining.task import Task, TaskObjective, of_stream
from workbench.sequences.sequence import Sample

PRIOR = "the linker of the corpus"
SHOWN = 500  # characters of an example


class Disambiguation(ObjectiveTask[Tuning, DisambiguationScoring]):
    """One candidate for each mention."""

    scoring = DisambiguationScoring
    objective: type[Objective] = EntityLinking
    panels = ("kg.evaluation.task_panels:linked",)

    def open(self, scoring: DisambiguationScoring) -> EvaluatedRun:
        def fits(task: Task, placed: TaskObjective) -> bool:
            linking = placed.objective
            return isinstance(linking, EntityLinking) and scoring.stream in (None, linking.stream)

        loaded = load(scoring.run, scoring.overrides, control=scoring.control, trust=scoring.trust)
        what = "the objective kg.entity_linking" + (f" of the stream {scoring.stream!r}" if scoring.stream else "")
        wanted = "evaluate a run that was pretrained with it"
        where: Any = {**scoring.where, "control": scoring.control}
        return texts_alone(find_fitting_objective(loaded, scoring.run, fits, what, wanted, **where))

    def needs(self, objective: EntityLinking) -> str:
        return "mentions whose entity is known (`prepare link --supervise` marks it among the candidates)"

    def cause(self, objective: EntityLinking, account: Mapping[str, Mapping[str, int]]) -> str:
        stream = objective.stream
        mentions, strange = (
            account[kind].get(of_stream(name, stream), account[kind].get(name, 0))
            for kind, name in (("used", "mentions"), ("dropped", WITHOUT_VECTOR))
        )
        if mentions or not strange:
            return ""
        return (
            f"none of the {strange} candidates is in the table of the stream {stream!r}; link it to the graph that "
            "this was built from (`prepare link --graph GRAPH --supervise`), or say another --stream"
        )

    def counts(self, objective: EntityLinking, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        known = int(made["labels"].sum())
        mentions = len(made["candidates"])
        single = int((made["candidates"] == 1).sum())
        mention_counts = {
            "mentions": mentions,
            "of them NIL": mentions - known,
            "of them with a single candidate": single,
        }
        return mention_counts | {"candidates": len(made["scores"])}

    def counted(self, objective: EntityLinking, targets: Mapping[str, Any]) -> int:
        return len(targets["candidates"]) if "candidates" in targets else 0

    def predictions(self, objective: EntityLinking, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        """A mention an item: the scores of its candidates, and the number of the right one (none: NIL)."""
        counts = made["candidates"].tolist()
        scores, labels = (made[name].split(counts) for name in ("scores", "labels"))
        golds = [int(of.argmax()) if of.any() else None for of in labels]
        ranks = [
            1.0 if gold is None else realistic_rank(of.float().numpy(), gold)[0]
            for of, gold in zip(scores, golds, strict=True)
        ]
        lines = [
            {"key": key, "gold": gold, "prediction": int(of.argmax()), "scores": of.tolist()}
            | ({} if gold is None else {"rank": rank})
            for key, gold, of, rank in zip(keys, golds, scores, ranks, strict=True)
        ]
        known = [gold is not None for gold in golds]
        tallies = {
            "accuracy": Tally.share([rank == 1 for rank in ranks], known),
            "mrr": Tally.mean([1 / rank for rank in ranks], known),
        }
        return EvaluationItems(lines, tallies if any(known) else {})

    def variant(self, objective: EntityLinking, scoring: DisambiguationScoring) -> str:
        return f"given mentions with their entity among the candidates {objective.stream}"

    def baselines(
        self, run: EvaluatedRun, objective: EntityLinking, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        return {PRIOR: {**made, "scores": made["priors"]}}

    def example(self, objective: EntityLinking, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        scores, labels = (by_mention(made[name].float(), made["candidates"]) for name in ("scores", "labels"))
        right = labels[torch.arange(len(labels)), scores.argmax(1)] == 1
        return {"text": sample["text"][:SHOWN], "right": int(right.sum()), "mentions": len(right)}

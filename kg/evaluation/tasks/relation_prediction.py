"""Relation prediction: the relation of two entities, ranked among all relations: mean rank, Hits@k, MRR.

The right relation is ranked for (h, ?, t) (KG-BERT, arXiv 1909.03193, section 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kg.evaluation.relation_ranking import (
    FrequentRelations,
    RankedRelations,
    RelationScores,
    RelationsOfEnds,
    rank_relations,
)
from kg.evaluation.task_options import RelationPredictionScoring
from kg.evaluation.training_facts import COUNTED, TrainingFacts
from kg.evaluation.triple_scoring import TripleRows, by_ids, in_words, relation_name
from kg.graph.store import GraphStore
from kg.objectives.relation_prediction import RelationPrediction
from kg.vectors.triple_ranks import rows_of
from workbench.core.live_output import ProgressBars
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result
from workbench.metrics.classes import by_class, class_counts
from workbench.metrics.ranks import chance, numbers_of, rank_scores, rank_tallies
from workbench.metrics.tallies import Tally

EXAMPLES = 12


class RelationPredictionTask(DownstreamTask[Tuning, RelationPredictionScoring]):
    """Ranks of relations, compared with chance and with baselines of the graph alone."""

    scoring = RelationPredictionScoring
    objective = RelationPrediction
    recipe = "kg-bert with `relation: false` in its builder"
    panels = ("kg.evaluation.task_panels:ranked",)

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: RelationPredictionScoring) -> Result:
        objective = run.objective.objective
        assert isinstance(objective, RelationPrediction)
        graph = objective.graph
        held_out = TripleRows.of(corpus, graph)
        triples = held_out.rows[: scoring.limit]
        trained = TrainingFacts.of(run, graph)
        not_held_out = trained.count(triples, str(corpus.place))
        others = [rows_of(graph, GraphStore.open(place).triples())[0] for place in scoring.known or ()]
        known = np.concatenate([trained.rows, held_out.rows, *others])

        def ranked(scores: RelationScores) -> RankedRelations:
            with ProgressBars() as progress:
                bar = progress.add_task("ranking", total=len(triples))
                return rank_relations(
                    *(scores, triples, known, graph.num_entities, scoring.batch_size),
                    advance=lambda count: progress.advance(bar, count),
                )

        found = ranked(objective.relation_scores(run.task, run.network, run.head))
        sizes = graph.num_relations, graph.num_entities
        frequent = ranked(FrequentRelations(graph.triple_rows, graph.num_relations))
        of_ends = ranked(RelationsOfEnds(graph.triple_rows, *sizes))
        names = [relation_name(graph, row) for row in range(graph.num_relations)]
        known_parts = "the graph, the corpus" + (", --known" if scoring.known else " alone (no --known)")
        return Result(
            task=self.name,
            numbers=_numbers(found, triples, names),
            counts={
                "triples": len(triples),
                "pairs": len(np.unique(triples[:, [0, 2]], axis=0)),
                "relations": graph.num_relations,
                "triples left out": held_out.left_out,
                COUNTED: not_held_out,
            },
            variant="; ".join([f"filtered by {known_parts}", "realistic ranks", *trained.reported]),
            baselines={
                "most frequent relations": _numbers(frequent, triples, names),
                "relations of head and tail": _numbers(of_ends, triples, names),
                "chance": chance(found.competing.tolist()),
            },
            classes=by_class(class_counts(found.predicted, triples[:, 1], names)),
            examples=list(_examples(found, triples, graph)),
            predictions=EvaluationItems([*_lines(found, triples, graph)], _tallies(found)),
        )


def _numbers(found: RankedRelations, triples: np.ndarray, names: list[str]) -> dict[str, float]:
    """The numbers of all triples, and the Hits@1 of every relation."""
    whole = numbers_of(rank_scores(found.ranks.tolist(), found.competing.tolist()))
    numbers = {name: whole[name] for name in ("hits@1", "mean_rank", "mrr", "hits@3", "hits@10", "median_rank")}
    for row in np.unique(triples[:, 1]).tolist():
        numbers[f"hits@1 of {names[row]}"] = float((found.ranks[triples[:, 1] == row] == 1).mean())
    return numbers


def _lines(found: RankedRelations, triples: np.ndarray, graph: GraphStore) -> Iterator[dict[str, Any]]:
    """A triple an item."""
    for triple, rank, among, best in zip(triples, *(each.tolist() for each in found), strict=True):
        row = by_ids(graph, triple)
        right = {"gold": row["relation"], "prediction": graph.relation_ids[best]}
        yield {**row, **right, "rank": rank, "among": among}


def _tallies(found: RankedRelations) -> dict[str, Tally]:
    tallies = rank_tallies(found.ranks.tolist())
    del tallies["accuracy"]  # it is hits@1
    return tallies


def _examples(found: RankedRelations, triples: np.ndarray, graph: GraphStore) -> Iterator[dict[str, Any]]:
    for number, triple in enumerate(triples[:EXAMPLES]):
        predicted = graph.relation_label(graph.relation_ids[int(found.predicted[number])])
        yield {**in_words(graph, triple), "prediction": predicted, "rank": float(found.ranks[number])}

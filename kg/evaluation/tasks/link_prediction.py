"""Link prediction: the missing end of a triple, ranked among all entities: MRR, Hits@k, mean rank.

The right entity is ranked for (h, r, ?) and for (?, r, t).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kg.evaluation.task_options import LinkPredicting, LinkScoring
from kg.evaluation.training_facts import COUNTED, TrainingFacts
from kg.evaluation.triple_scoring import (
    ScoredVectors,
    TripleRows,
    by_ids,
    in_words,
    open_scored,
    relation_name,
    scores_of,
    scoring_run,
)
from kg.graph.store import GraphStore
from kg.vectors.frequency import FrequencyScores
from kg.vectors.scores import TripleScores
from kg.vectors.triple_ranks import QuestionRanks, SampledTriples, rank_triples, rows_of
from workbench.core.errors import WorkbenchError, shown, unknown
from workbench.core.live_output import ProgressBars
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result
from workbench.metrics.ranks import chance, numbers_of, rank_tallies
from workbench.metrics.tallies import Tally
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.sequence import Sample

EXAMPLES, LISTED = 12, 200
TRIPLE, UNKNOWN = ("head", "relation", "tail"), "?"
SIDED = ("mrr", "hits@1", "hits@3", "hits@10", "mean_rank")


class LinkPrediction(DownstreamTask[Tuning, LinkScoring]):
    """Ranks of heads and tails, compared with chance and the relation's most frequent entities."""

    scoring = LinkScoring
    predicting = LinkPredicting
    text_files = (*DownstreamTask.text_files, ".tsv")
    panels = ("kg.evaluation.task_panels:predicted",)

    def open(self, scoring: LinkScoring | LinkPredicting) -> EvaluatedRun | ScoredVectors:
        return open_scored(scoring)

    def chosen(self, loaded: LoadedRun, options: LinkScoring | LinkPredicting) -> EvaluatedRun:
        return scoring_run(loaded, options)

    def asked(self, run: EvaluatedRun | ScoredVectors, sample: Sample, predicting: LinkPredicting) -> Sample:
        parts = [part.strip() for part in re.split(r"\t|,", str(sample.get("text", "")))]
        if len(parts) != len(TRIPLE) or parts.count(UNKNOWN) != 1 or parts[1] == UNKNOWN:
            raise WorkbenchError(
                f"input {sample['key']!r} is {shown(sample.get('text'))}; allowed: the ids of an entity, a relation "
                f"and an entity, separated by commas or tabs, with {UNKNOWN} for one entity: Q585, P17, {UNKNOWN}"
            )
        return {**sample, **dict(zip(TRIPLE, parts, strict=True))}

    def predict(
        self, run: EvaluatedRun | ScoredVectors, samples: list[Sample], number: int, predicting: LinkPredicting
    ) -> list[dict[str, Any]]:
        """The best entities for each question, with their names, their scores, and whether the graph states that."""
        graph = GraphStore.open(predicting.graph)
        if isinstance(run, ScoredVectors):
            run.check_entities(graph)
        scores, known, lines = (
            scores_of(run, graph, predicting.batch_size),
            {*map(tuple, graph.triple_rows.tolist())},
            [],
        )
        for sample in samples:
            head, relation, tail = (_row(graph, sample, part) for part in TRIPLE)
            row = scores.tails(*_columns(head, relation)) if tail < 0 else scores.heads(*_columns(relation, tail))
            best = row[0].topk(min(predicting.best, graph.num_entities))
            completed = [
                {"entity": graph.ids[i], "name": graph.label_of(i), "score": score}
                | {"known": ((head, relation, i) if tail < 0 else (i, relation, tail)) in known}
                for score, i in zip(*(column.tolist() for column in best), strict=True)
            ]
            lines.append({"key": str(sample["key"]), "question": sample["text"], "prediction": completed})
        return lines

    def score(self, run: EvaluatedRun | ScoredVectors, corpus: Corpus, scoring: LinkScoring) -> Result:
        graph = GraphStore.open(scoring.graph)
        held_out = TripleRows.of(corpus, graph)
        trained = TrainingFacts.of(run, graph)
        learned = trained.rows
        triples = (_of_unseen(held_out.rows, learned, graph) if scoring.unseen else held_out.rows)[: scoring.limit]
        not_held_out = trained.count(triples, str(corpus.place))
        others = [rows_of(graph, GraphStore.open(place).triples())[0] for place in scoring.known or ()]
        known = np.concatenate([learned, held_out.rows, *others])
        sampled = SampledTriples(scoring.candidates, scoring.seed) if scoring.candidates else None

        def ranked(scores: TripleScores, what: str) -> QuestionRanks:
            with ProgressBars() as progress:
                bar = progress.add_task(what, total=len(triples))
                options: Any = {"sampled": sampled, "num_entities": graph.num_entities}
                return rank_triples(
                    scores,
                    triples,
                    known,
                    graph.num_relations,
                    scoring.batch_size,
                    advance=lambda count: progress.advance(bar, count),
                    **options,
                )

        found = ranked(scores_of(run, graph, scoring.batch_size), "ranking")
        frequent = ranked(FrequencyScores(graph.triple_rows, graph.num_entities), "most frequent entities")
        competing = np.concatenate([found.head_competing, found.tail_competing]).tolist()
        return Result(
            task=self.name,
            numbers=_numbers(found, triples, graph),
            counts={
                "triples": len(triples),
                "entities": graph.num_entities,
                "triples left out": held_out.left_out,
                COUNTED: not_held_out,
            },
            variant="; ".join([_variant(scoring, graph.num_entities), *trained.reported]),
            baselines={"most frequent entities": _numbers(frequent, triples, graph), "chance": chance(competing)},
            examples=list(_examples(found, triples, graph)),
            predictions=EvaluationItems([*_lines(found, triples, graph)], _tallies(found)),
        )


def _row(graph: GraphStore, sample: Sample, part: str) -> int:
    """The row of a part of a question; -1 for the one that is asked.

    Raises:
        WorkbenchError: the graph does not have it.
    """
    name = sample[part]
    ids = graph.relation_ids if part == "relation" else graph.ids
    row = -1 if name == UNKNOWN else ids.find(name)
    if row < 0 and name != UNKNOWN:
        kind = "relation" if part == "relation" else "entity"
        raise unknown(kind, name, [ids[i] for i in range(min(len(ids), LISTED))], f"the graph {graph.path}")
    return row


def _columns(*rows: int) -> list[Tensor]:
    return [torch.tensor([row]) for row in rows]


def _of_unseen(triples: np.ndarray, learned: np.ndarray, graph: GraphStore) -> np.ndarray:
    """The triples with an entity that is in no training triple."""
    unseen = np.ones(graph.num_entities, bool)
    unseen[learned[:, [0, 2]]] = False
    chosen = triples[unseen[triples[:, 0]] | unseen[triples[:, 2]]]
    if not len(chosen):
        raise WorkbenchError(
            f"--unseen: every entity of the triples is in a triple of the graph {graph.path}; hold some out: "
            "`workbench prepare triples GRAPH --split test=0.1 --inductive --output CORPUS`, and train on CORPUS"
        )
    return chosen


def _numbers(ranks: QuestionRanks, triples: np.ndarray, graph: GraphStore) -> dict[str, float]:
    """The numbers of both sides together, of each side, and the MRR of every relation."""
    whole = ranks.summary()
    numbers = {name: value for name, value in numbers_of(whole.both).items() if name != "accuracy"}  # it is hits@1
    for side in ("head", "tail"):
        of_side = numbers_of(getattr(whole, side))
        numbers |= {f"{side} {name}": of_side[name] for name in SIDED}
    for row in np.unique(triples[:, 1]).tolist():
        numbers[f"mrr/relation/{relation_name(graph, row)}"] = ranks.summary(triples[:, 1] == row).both.mrr
    return numbers


def _variant(scoring: LinkScoring, num_entities: int) -> str:
    known = "the graph, the corpus" + (", --known" if scoring.known else " alone (no --known)")
    protocol = [f"filtered by {known}", "realistic ranks"]
    if scoring.candidates and scoring.candidates >= num_entities:
        protocol.append(f"among all entities, which are no more than --candidates {scoring.candidates}")
    elif scoring.candidates:
        protocol.append(f"among {scoring.candidates} wrong entities drawn with seed {scoring.seed}, not among all")
    if scoring.unseen:
        protocol.append("only triples with an entity that is in no triple of the graph")
    return "; ".join(protocol)


def _lines(ranks: QuestionRanks, triples: np.ndarray, graph: GraphStore) -> Iterator[dict[str, Any]]:
    """A triple an item, with the ranks of its head and tail and among how many entities they are."""
    for number, triple in enumerate(triples):
        by_side = {f"{side}_rank": float(getattr(ranks, side)[number]) for side in ("head", "tail")}
        by_side |= {f"{side}_among": int(getattr(ranks, f"{side}_competing")[number]) for side in ("head", "tail")}
        ids = by_ids(graph, triple)
        yield {**ids, "gold": [ids["head"], ids["tail"]], **by_side}


def _tallies(ranks: QuestionRanks) -> dict[str, Tally]:
    """The tallies of each triple for the numbers of both sides together, and of each side."""
    sides = {side: rank_tallies(getattr(ranks, side).tolist()) for side in ("head", "tail")}
    found: dict[str, Tally] = {}
    for name, head in sides["head"].items():
        rows, tail = head.rows, sides["tail"][name].rows
        both = np.concatenate([rows, tail], axis=1) if head.kind == "median" else rows + tail
        found |= {name: Tally(head.kind, both)} if name != "accuracy" else {}
    for side, of in sides.items():
        found |= {f"{side} {name}": of[name] for name in SIDED}
    return found


def _examples(ranks: QuestionRanks, triples: np.ndarray, graph: GraphStore) -> Iterator[dict[str, Any]]:
    for number, triple in enumerate(triples[:EXAMPLES]):
        places = {"head_rank": float(ranks.head[number]), "tail_rank": float(ranks.tail[number])}
        yield {**in_words(graph, triple), **places}

"""Triple classification with a threshold for each relation: accuracy, precision, recall, F1.

A triple is true if its score is at least the threshold of its relation: the threshold that classifies the known triples
of the relation best.

Socher et al., "Reasoning With Neural Tensor Networks for Knowledge Base Completion" (NeurIPS 2013), section 4.2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kg.evaluation.task_options import TripleClassificationScoring
from kg.evaluation.training_facts import COUNTED, TrainingFacts, stated_by
from kg.evaluation.triple_scoring import (
    ScoredVectors,
    TripleRows,
    by_ids,
    in_words,
    open_scored,
    relation_name,
    scores_of,
)
from kg.graph.store import GraphStore
from kg.vectors.frequency import FrequencyScores
from kg.vectors.scores import TripleScores, VectorScores
from kg.vectors.vectors import load_vectors
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result, corpus_input
from workbench.metrics.tallies import Tally

logger = logging.getLogger(__name__)


EXAMPLES = 12
VARIANT = "thresholds of --valid, a relation each"


@dataclass(frozen=True)
class LabelledTriples:
    """Triples as rows [triples, 3], and which of them are true [triples] bool."""

    rows: np.ndarray
    true: np.ndarray
    left_out: int

    @classmethod
    def of(cls, true: TripleRows, false: TripleRows, limit: int | None = None) -> LabelledTriples:
        """Both, or the first ones of each."""
        parts = [triples.rows[:limit] for triples in (true, false)]
        labels = np.repeat([True, False], [len(part) for part in parts])
        return cls(np.concatenate(parts), labels, true.left_out + false.left_out)


def refuse_true(true: Mapping[str, TripleRows], false: Mapping[str, TripleRows], trained: TrainingFacts) -> None:
    """Check that nothing is true and false: corpora by their place, each false one against all true ones and graphs.

    Raises:
        WorkbenchError: a triple is both; names how many are, and of what.
    """
    graph = trained.graph
    for of_false, those in false.items():
        found = {place: stated_by(each, those.rows, graph) for place, each in trained.named.items()}
        found |= {place: _among(those.rows, each.rows) for place, each in true.items()}
        for of_true, both in found.items():
            if both.any():
                raise WorkbenchError(
                    f"{both.sum():,} triples are among the true ones ({of_true}) and among the false ones "
                    f"({of_false}), such as {' - '.join(in_words(graph, those.rows[both.argmax()]).values())}; leave "
                    "them out of one of the two"
                )


def _among(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which of the triples are among others: [triples] bool."""
    known = set(map(tuple, others.tolist()))
    return np.array([tuple(row) in known for row in rows.tolist()], bool)


class TripleDecision(DownstreamTask[Tuning, TripleClassificationScoring]):
    """True and false triples, compared with the majority, the relation's most frequent entities, and vectors."""

    scoring = TripleClassificationScoring
    panels = ("kg.evaluation.task_panels:decided",)

    def open(self, scoring: TripleClassificationScoring) -> EvaluatedRun | ScoredVectors:
        return open_scored(scoring)

    def score(self, run: EvaluatedRun | ScoredVectors, corpus: Corpus, scoring: TripleClassificationScoring) -> Result:
        graph = GraphStore.open(scoring.graph)
        trained = TrainingFacts.of(run, graph)
        alongside = {name: Corpus.open(getattr(scoring, name)) for name in ("negatives", "valid", "valid_negatives")}
        of_test, of_valid = TripleRows.of(corpus, graph), TripleRows.of(alongside["valid"], graph)
        false, false_valid = (TripleRows.of(alongside[name], graph) for name in ("negatives", "valid_negatives"))
        refuse_true(
            {f"CORPUS {corpus.place}": of_test, f"--valid {scoring.valid}": of_valid},
            {f"--negatives {scoring.negatives}": false, f"--valid-negatives {scoring.valid_negatives}": false_valid},
            trained,
        )
        known, asked = LabelledTriples.of(of_valid, false_valid), LabelledTriples.of(of_test, false, scoring.limit)
        not_held_out = trained.count(asked.rows[asked.true], str(corpus.place))
        others = [ScoredVectors(Path(file), load_vectors(file)) for file in scoring.alongside or ()]
        for each in others:
            TrainingFacts.of(each, graph).count(asked.rows[asked.true], str(corpus.place))
        models: dict[str, TripleScores] = {
            "most frequent entities": FrequencyScores(graph.triple_rows, graph.num_entities),
            **{each.path.name: VectorScores(each.vectors, graph) for each in others},
        }
        scores, decided = _decided(scores_of(run, graph, scoring.batch_size), known, asked)
        baselines = {name: _decided(model, known, asked)[1] for name, model in models.items()}
        baselines = {"majority": _majority(known, asked), **baselines}
        own = set(known.rows[:, 1].tolist())
        return Result(
            task=self.name,
            numbers=_numbers(decided, asked, graph),
            counts={
                "true triples": int(asked.true.sum()),
                "false triples": int((~asked.true).sum()),
                "of relations without a threshold": int((~np.isin(asked.rows[:, 1], list(own))).sum()),
                "triples left out": asked.left_out,
                COUNTED: not_held_out,
            },
            inputs={name: corpus_input(of) for name, of in alongside.items()},
            variant="; ".join(
                ["thresholds of --valid, a relation each", *_of_thresholds(known, trained), *trained.reported]
            ),
            baselines={name: _numbers(made, asked, graph) for name, made in baselines.items()},
            examples=list(_examples(scores, decided, asked, graph)),
            predictions=EvaluationItems([*_lines(scores, decided, asked, graph)], _tallies(decided, asked)),
        )


def _of_thresholds(known: LabelledTriples, trained: TrainingFacts) -> list[str]:
    """Warns if triples that thresholds are chosen on were trained on. Their scores are too high."""
    count = int(trained.state(known.rows[known.true]).sum())
    if not count:
        return []
    message = f"{count:,} of the {int(known.true.sum()):,} true triples of --valid were trained on"
    logger.warning("%s, so the thresholds are too high for held-out triples; hold these out too", message)
    return [message]


def _decided(model: TripleScores, known: LabelledTriples, asked: LabelledTriples) -> tuple[np.ndarray, np.ndarray]:
    """The scores, and what is held to be true by the thresholds of the known triples: [triples]."""
    of_known, scores = (model.triples(torch.from_numpy(part.rows)).numpy() for part in (known, asked))
    thresholds = Thresholds.fitted(of_known, known.rows[:, 1], known.true)
    return scores, thresholds.decide(scores, asked.rows[:, 1])


def _majority(known: LabelledTriples, asked: LabelledTriples) -> np.ndarray:
    """The majority label of the relation's known triples."""
    nothing = np.zeros(len(known.rows))
    return Thresholds.fitted(nothing, known.rows[:, 1], known.true).decide(np.zeros(len(asked.rows)), asked.rows[:, 1])


def _numbers(decided: np.ndarray, asked: LabelledTriples, graph: GraphStore) -> dict[str, float]:
    """Accuracy; precision, recall and F1 of the true triples; the accuracy of every relation."""
    right = decided == asked.true
    hits = float((decided & asked.true).sum())
    numbers = {
        "accuracy": float(right.mean()),
        "precision": hits / max(1, int(decided.sum())),
        "recall": hits / max(1, int(asked.true.sum())),
        "f1": 2 * hits / max(1, int(decided.sum() + asked.true.sum())),
    }
    for row in np.unique(asked.rows[:, 1]).tolist():
        numbers[f"accuracy of {relation_name(graph, row)}"] = float(right[asked.rows[:, 1] == row].mean())
    return numbers


def _lines(
    scores: np.ndarray, decided: np.ndarray, asked: LabelledTriples, graph: GraphStore
) -> Iterator[dict[str, Any]]:
    """A triple an item."""
    for triple, gold, ours, score in zip(asked.rows, *(x.tolist() for x in (asked.true, decided, scores)), strict=True):
        yield {**by_ids(graph, triple), "gold": gold, "prediction": ours, "score": score}


def _tallies(decided: np.ndarray, asked: LabelledTriples) -> dict[str, Tally]:
    hits = decided & asked.true
    return {
        "accuracy": Tally.share(decided == asked.true),
        "precision": Tally.of("share", hits, decided),
        "recall": Tally.of("share", hits, asked.true),
        "f1": Tally.of("f1", hits, decided, asked.true),
    }


def _examples(
    scores: np.ndarray, decided: np.ndarray, asked: LabelledTriples, graph: GraphStore
) -> Iterator[dict[str, Any]]:
    """The first true and false ones in turn."""
    places = [np.flatnonzero(asked.true == true)[: EXAMPLES // 2].tolist() for true in (True, False)]
    for number in (place for pair in zip(*places, strict=False) for place in pair):
        row = {"prediction": bool(decided[number]), "label": bool(asked.true[number])}
        yield {**in_words(graph, asked.rows[number]), "score": float(scores[number]), **row}


@dataclass(frozen=True)
class Thresholds:
    """Thresholds by the relation's row. Relations without known triples have the threshold of all triples."""

    of_relation: dict[int, float]
    of_all: float

    @classmethod
    def fitted(cls, scores: np.ndarray, relations: np.ndarray, true: np.ndarray) -> Thresholds:
        """Scores, relations' rows and whether they are true, of known triples: [triples] each."""
        rows = np.unique(relations).tolist()
        chosen = {row: best_threshold(scores[relations == row], true[relations == row]) for row in rows}
        return cls(chosen, best_threshold(scores, true))

    def decide(self, scores: np.ndarray, relations: np.ndarray) -> np.ndarray:
        """Which triples are true: [triples] bool."""
        return scores >= np.array([self.of_relation.get(row, self.of_all) for row in relations.tolist()])


def best_threshold(scores: np.ndarray, true: np.ndarray) -> float:
    """The threshold with the most right decisions, the lowest of several; half-way between two scores, or infinite
    where all triples are best held to be true, or false."""
    order = np.argsort(scores, kind="stable")
    ordered, right = scores[order].astype(float), true[order]
    below = np.concatenate([[0], np.cumsum(~right)])  # cut at k: the k lowest are false
    above = np.concatenate([np.cumsum(right[::-1])[::-1], [0]])
    edges = np.concatenate([[-np.inf], (ordered[1:] + ordered[:-1]) / 2, [np.inf]])
    between = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    return float(edges[np.where(between, below + above, -1).argmax()])

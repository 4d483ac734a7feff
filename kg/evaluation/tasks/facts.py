"""Fact retrieval: the object of a fact is ranked in a cloze sentence.

It measures whether a model knows the object of a fact, or reads it from the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from kg.evaluation.contamination import stated_clozes
from kg.evaluation.facts.cloze_corpus import ClozeFacts, fact_of, read_candidates, read_facts
from kg.evaluation.facts.clozes import CANDIDATES
from kg.evaluation.facts.fact_ranking import FactScores, rank_objects
from kg.evaluation.facts.neighbourhood import draw_subject
from kg.evaluation.facts.object_frequencies import counts_in_graph, counts_in_training, most_frequent
from kg.evaluation.facts.slots import SlotPredictor
from kg.evaluation.facts.subject_frequencies import tallies_by_frequency
from kg.evaluation.task_options import FactsScoring
from kg.graph.store import GraphStore
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_objective
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result, corpus_input
from workbench.interop.run_or_checkpoint import load, recipe_at
from workbench.metrics.ranks import chance, numbers_of, rank_scores, rank_tallies
from workbench.objectives.mlm import Mlm, MlmHead
from workbench.recipe.spec import Recipe


class FactRanking(DownstreamTask[Tuning, FactsScoring]):
    """Ranks of the objects, compared with chance and the training set's most frequent objects."""

    scoring = FactsScoring
    objective = Mlm
    panels = ("kg.evaluation.task_panels:filled",)

    def open(self, scoring: FactsScoring) -> EvaluatedRun:
        name = scoring.task or _facts_task(recipe_at(scoring.run))
        wanted = "evaluate a run that was pretrained with mlm"
        loaded = load(scoring.run, scoring.overrides, control=scoring.control, trust=scoring.trust)
        options: Any = {**scoring.where, "task": name, "control": scoring.control}
        return find_objective(loaded, scoring.run, Mlm, wanted, **options)

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: FactsScoring) -> Result:
        known = [GraphStore.open(place) for place in scoring.known or ()]
        place = scoring.candidates or Path(corpus.place) / CANDIDATES
        candidates = read_candidates(place)
        facts = read_facts(corpus, candidates, known, scoring.limit)
        scores = _ranked(run, facts, scoring)
        ranks = [rank for s in scores.values() for rank in s.ranks]
        competing = [n for f in facts.values() for n in f.rank_by([0.0] * len(f.candidates.labels))[1]]
        numbers = numbers_of(rank_scores(ranks, competing))
        account = _account(run, facts, scoring.batch_size)
        shared = sum(f.candidates.shared for f in facts.values())
        if len(scores) > 1:
            numbers |= {f"accuracy of {relation}": s.scores.accuracy for relation, s in scores.items()}
        tallies = rank_tallies(ranks)
        inputs = {}
        if scoring.frequencies is not None:
            often = Corpus.open(scoring.frequencies)
            inputs["frequencies"] = corpus_input(often)
            subjects = [fact_of(sample)[1] for relation in scores for sample in facts[relation].samples]
            split = tallies_by_frequency(tallies, subjects, often)
            numbers |= {name: tally.whole for name, tally in split.items()}
            tallies |= split
        frequent = {"most frequent objects": most_frequent(facts, counts_in_training(run))}
        frequent["most frequent objects of the graph"] = most_frequent(facts, counts_in_graph(place))
        return Result(
            task=self.name,
            numbers=numbers,
            counts={
                "sentences": len(ranks),
                "candidates": max(len(f.candidates.labels) for f in facts.values()),
                **({"candidates that are several entities": shared} if shared else {}),
                "candidates that are true too": sum(len(c.also_right) for f in facts.values() for c in f.clozes),
                **stated_clozes(run.loaded.data_identities, (fact_of(s) for f in facts.values() for s in f.samples)),
            },
            variant=f"a candidate's score is the {scoring.normalisation} of its tokens' log-probabilities; realistic "
            "ranks",
            baselines={name: reported for name, reported in frequent.items() if reported}
            | {"chance": chance(competing)},
            examples=[e for relation, s in scores.items() for e in _examples(facts[relation], s)],
            inputs=inputs,
            used=account["used"],
            dropped=account["dropped"],
            predictions=EvaluationItems([e for r, s in scores.items() for e in _lines(facts[r], s)], tallies),
        )

    def draw(self, run: EvaluatedRun, corpus: Corpus, scoring: FactsScoring) -> None:
        draw_subject(run, [fact_of(sample)[1] for sample in islice(corpus, scoring.limit)])


def _ranked(run: EvaluatedRun, facts: Mapping[str, ClozeFacts], scoring: FactsScoring) -> dict[str, FactScores]:
    """The scores of every relation."""
    objective = run.objective.objective
    assert isinstance(run.head, MlmHead)
    assert isinstance(objective, Mlm)
    predict = SlotPredictor(
        run.network,
        run.head,
        lambda samples, draws: run.task.sequences(samples),
        run.tokenizer.id("mask"),
        objective.stream,
    )
    how: Any = {"normalisation": scoring.normalisation, "batch_size": scoring.batch_size}
    return {
        relation: rank_objects(f.clozes, f.candidates.labels, run.tokenizer, predict, **how)
        for relation, f in facts.items()
    }


def _account(run: EvaluatedRun, facts: Mapping[str, ClozeFacts], size: int) -> dict[str, dict[str, int]]:
    """Counts of knowledge used and left out, over sentences with their objects. Ranking reads each several times."""
    run.take_account()
    samples = [each.sample(of.candidates.labels[each.gold], ()) for of in facts.values() for each in of.clozes]
    for number, start in enumerate(range(0, len(samples), size)):
        run.task.sequences(samples[start : start + size], (number,))
    return run.take_account()


def _facts_task(recipe: Recipe) -> str | None:
    """The run's first task whose corpora name facts by masking given stretches; None: any with mlm will do."""
    for name, task in recipe.tasks.items():
        maskings = [o.get("masking") for o in task.objectives if isinstance(o, dict)]
        if any(p == "field" or (isinstance(p, dict) and p.get("masking") == "field") for p in maskings):
            return name
    return None


def _lines(facts: ClozeFacts, scores: FactScores) -> Iterator[dict[str, Any]]:
    """A sentence an item."""
    labels = facts.candidates.labels
    for cloze, best, rank in zip(facts.clozes, scores.best, scores.ranks, strict=True):
        row = {"relation": facts.relation, "gold": labels[cloze.gold], "prediction": labels[best]}
        yield {"key": cloze.key, **row, "rank": rank}


def _examples(facts: ClozeFacts, scores: FactScores, count: int = 12) -> list[dict[str, Any]]:
    found = []
    for i in range(min(count, len(facts.clozes))):
        sample = facts.samples[i]
        found.append(
            {
                "text": sample["text"],
                "mask": sample["mask_spans"][0][:2],
                "object": facts.candidates.labels[facts.clozes[i].gold],
                "prediction": facts.candidates.labels[scores.best[i]],
                "rank": scores.ranks[i],
            }
        )
    return found

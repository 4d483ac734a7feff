"""`workbench evaluate facts`: does the model know the object of a fact, or can it read it from the graph?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from kg.evaluation.facts import Cloze, FactScores, Normalisation, rank_objects
from kg.evaluation.inventory import records
from kg.evaluation.pictures import draw_subject
from kg.evaluation.slots import SlotPredictor
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.opening import Evaluated, open_run, result_path
from workbench.evaluation.ranks import RankScores, rank_scores, realistic_rank
from workbench.evaluation.result import Result, corpus_input
from workbench.files.json_values import parse_json
from workbench.objectives.mlm import Mlm, MlmHead
from workbench.options.bounds import Count, Location, Word
from workbench.options.command import Trust
from workbench.recipe.spec import Control
from workbench.sequences.sequence import Sample

TASK = "facts"


@dataclass
class Facts:
    """The cloze sentences of one relation, the candidates for their objects, and the sentences as they were."""

    relation: str
    ids: list[str]
    labels: list[str]
    clozes: list[Cloze] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def rank_by(self, scores: Sequence[float]) -> tuple[list[float], list[int]]:
        """Ranks and numbers of competitors where every sentence scores the candidates [candidates] alike."""
        ranked = [realistic_rank(np.asarray(scores, float), c.gold, c.also_right) for c in self.clozes]
        return [rank for rank, _ in ranked], [number for _, number in ranked]


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run with an MLM objective.")],
    corpus: Annotated[Location, typer.Argument(help="Cloze sentences: texts with one stretch in mask_spans each.")],
    candidates: Annotated[Path, typer.Option(help="JSON: relation -> [{id, label}], what an object is ranked among.")],
    task: Annotated[Word | None, typer.Option(help="Whose builder and steps; default: the first that masks.")] = None,
    normalisation: Annotated[Normalisation, typer.Option(help="Of a candidate of several tokens.")] = "sum",
    control: Annotated[
        Control | None, typer.Option(help="no-kg, shuffled-kg or random-entities, at test time.")
    ] = None,
    batch_size: Annotated[Count, typer.Option(help="Sentences at once.")] = 128,
    limit: Annotated[Count | None, typer.Option(help="Only the first sentences.")] = None,
    trust: Trust = False,
) -> None:
    """Rank the object of each fact among all candidates, from a sentence with a slot where the object was.

    A record has `mask_spans` (the object's characters) and, in `meta`, `relation`, `subject` and `object` (ids).
    Candidates that are the object of another sentence of the same subject and relation don't compete.

    Examples:

      workbench evaluate facts runs/k-bert corpora/facts-heldout --candidates raw/facts_candidates.json

      workbench evaluate facts runs/k-bert corpora/facts-heldout --candidates raw/facts_candidates.json --control no-kg
    """
    opened = Corpus.open(corpus)
    facts = read_facts(opened, read_candidates(candidates), limit)
    name = task or _facts_task(run)
    wanted = "evaluate a run that was pretrained with mlm"
    evaluated = open_run(run, Mlm, wanted, task=name, control=control, trust=trust)
    evaluated.check_linked(opened)
    result = evaluate_facts(evaluated, facts, normalisation, batch_size)
    result.control = control
    result.inputs = {"checkpoint": evaluated.checkpoint, "corpus": corpus_input(opened), "candidates": str(candidates)}
    result.write(result_path(run, TASK, opened.name, control))
    draw_subject(evaluated, [_fact(sample)[1] for found in facts.values() for sample in found.samples])
    result.show()


def read_candidates(path: Path) -> dict[str, dict[str, str]]:
    """Relation -> candidate id -> its spelling.

    Raises:
        WorkbenchError: no such file, or another content.
    """
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
        return {relation: {str(c["id"]): str(c["label"]) for c in listed} for relation, listed in tree.items()}
    except OSError as error:
        raise WorkbenchError(f"there are no candidates at {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WorkbenchError(f'{path} is not JSON of the form {{relation: [{{"id": ..., "label": ...}}]}}') from error


def read_facts(
    corpus: Corpus, candidates: Mapping[str, Mapping[str, str]], limit: int | None = None
) -> dict[str, Facts]:
    """The sentences of a corpus by relation.

    Raises:
        WorkbenchError: a record that names no fact, or one whose relation or object has no candidates.
    """
    samples = [sample for sample, _ in zip(records(corpus), range(limit or corpus.records), strict=False)]
    right: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sample in samples:
        relation, subject, wanted = _fact(sample)
        right[subject, relation].add(wanted)
    found: dict[str, Facts] = {}
    for sample in samples:
        relation, subject, wanted = _fact(sample)
        if wanted not in candidates.get(relation, {}):
            raise WorkbenchError(
                f"record {sample['key']!r}: ({relation}, {wanted}) is not among the candidates, which are of the "
                f"relations {', '.join(sorted(candidates))}"
            )
        ids = list(candidates[relation])
        facts = found.setdefault(relation, Facts(relation, ids, list(candidates[relation].values())))
        others = [i for i, name in enumerate(ids) if name in right[subject, relation] - {wanted}]
        facts.clozes.append(Cloze.of(sample, ids.index(wanted), others))
        facts.samples.append(sample)
    return found


def evaluate_facts(
    run: Evaluated, facts: Mapping[str, Facts], normalisation: Normalisation = "sum", batch_size: int = 128
) -> Result:
    """The scores of all sentences, with two baselines: the training set's most frequent objects, and chance."""
    assert isinstance(run.head, MlmHead)
    predict = SlotPredictor(
        run.network, run.head, lambda samples, draws: run.task.sequences(samples), run.tokenizer.id("mask")
    )
    scores = {
        relation: rank_objects(
            f.clozes, f.labels, run.tokenizer, predict, normalisation=normalisation, batch_size=batch_size
        )
        for relation, f in facts.items()
    }
    ranks = [rank for s in scores.values() for rank in s.ranks]
    competing = [n for f in facts.values() for n in f.rank_by([0.0] * len(f.ids))[1]]
    numbers = _numbers(rank_scores(ranks, competing))
    if len(scores) > 1:
        numbers |= {f"accuracy of {relation}": s.scores.accuracy for relation, s in scores.items()}
    baselines = {"chance": _chance(competing)}
    frequent = most_frequent(run, facts)
    if frequent is not None:
        baselines = {"most frequent objects": frequent, **baselines}
    return Result(
        task=TASK,
        numbers=numbers,
        counts={"sentences": len(ranks), "candidates": max(len(f.ids) for f in facts.values())},
        inputs={},
        variant=f"a candidate's score is the {normalisation} of its tokens' log-probabilities; realistic ranks",
        baselines=baselines,
        examples=[e for relation, s in scores.items() for e in _examples(facts[relation], s)],
    )


def most_frequent(run: Evaluated, facts: Mapping[str, Facts]) -> dict[str, float] | None:
    """Ranking the candidates by how often the training sentences have them; None where these name no facts."""
    counts: Counter[tuple[str, str]] = Counter()
    for place in run.task.spec.corpora:
        for sample in records(Corpus.open(place)):
            meta = sample.get("meta", {})
            counts[str(meta.get("relation")), str(meta.get("object"))] += 1
    if not any(relation in facts for relation, _ in counts):
        return None
    ranks, competing = [], []
    for relation, f in facts.items():
        own = f.rank_by([counts[relation, name] for name in f.ids])
        ranks += own[0]
        competing += own[1]
    return _numbers(rank_scores(ranks, competing))


def _facts_task(run: Path) -> str | None:
    """The run's first task whose corpora name facts by masking given stretches; None: any with mlm will do."""
    from workbench.runs.folder import read_recipe

    for name, task in read_recipe(run).tasks.items():
        policies = [o.get("policy") for o in task.objectives if isinstance(o, dict)]
        if any(p == "field" or (isinstance(p, dict) and p.get("policy") == "field") for p in policies):
            return name
    return None


def _fact(sample: Sample) -> tuple[str, str, str]:
    meta = sample.get("meta", {})
    missing = [name for name in ("relation", "subject", "object") if name not in meta]
    if missing:
        raise WorkbenchError(
            f"record {sample.get('key')!r} has no {', '.join(missing)} in its meta; a fact needs relation, subject and "
            "object beside its text and mask_spans"
        )
    return str(meta["relation"]), str(meta["subject"]), str(meta["object"])


def _numbers(scores: RankScores) -> dict[str, float]:
    flat = scores.as_dict()
    return {name: float(value) for name, value in flat.items() if name not in ("chance", "examples")}


def _chance(competing: Sequence[int]) -> dict[str, float]:
    """What a random order of the candidates gives on average."""
    n = np.asarray(competing, float)
    harmonic = {int(k): float((1 / np.arange(1, int(k) + 1)).sum() / k) for k in set(competing)}
    return {
        "accuracy": float((1 / n).mean()),
        "mrr": float(np.mean([harmonic[k] for k in competing])),
        **{f"hits@{k}": float(np.minimum(k / n, 1).mean()) for k in (1, 3, 10)},
        "median_rank": float(np.median((n + 1) / 2)),
    }


def _examples(facts: Facts, scores: FactScores, count: int = 12) -> list[dict[str, Any]]:
    found = []
    for i in range(min(count, len(facts.clozes))):
        sample = facts.samples[i]
        found.append(
            {
                "text": sample["text"],
                "mask": sample["mask_spans"][0][:2],
                "object": facts.labels[facts.clozes[i].gold],
                "prediction": facts.labels[scores.best[i]],
                "rank": scores.ranks[i],
            }
        )
    return found

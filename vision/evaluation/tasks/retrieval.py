"""Text-to-image and image-to-text retrieval, also of videos: recall at 1, 5, 10 and median rank.

There are three ways to score: the vectors of a dual encoder (itc), the matching of every pair (itm), or matching that
re-ranks the first candidates of a dual encoder (ALBEF, arXiv:2107.07651, section 3.4). The result's variant names the
way. Any objective with such vectors or scores will do (`vision.objectives._comparing`). A video's candidates are the
segments of its captions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vision.choices import Way
from vision.evaluation.retrieval.pair_scores import WAYS, ScoredPairs, find_comparing, score
from vision.evaluation.retrieval.retrieval_corpus import ImageSubset, check_pairs, ranked_among, with_same_features
from vision.evaluation.retrieval.retrieval_examples import examples, failures, query_lines
from vision.evaluation.task_options import RetrievalPredicting, RetrievalScoring, RetrievalTuning
from vision.metrics.retrieval_scores import (
    chance,
    rank_images,
    rank_metrics,
    rank_tallies,
    rank_texts,
    retrieval_metrics,
)
from vision.objectives.itm import Itm
from workbench.components.building import find
from workbench.core.errors import WorkbenchError, quoted, unknown
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.image_sequences import caption_sequence, medium_of
from workbench.evaluation.scoring.result import Result
from workbench.interop.run_or_checkpoint import found_at, opened
from workbench.metrics.tallies import Tally
from workbench.pretraining.task import objective_name
from workbench.recipe.spec import Recipe, Spec
from workbench.runs.folder import trust_run
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.image_stream import SAME_FEATURES
from workbench.sequences.sequence import Sample

OBJECTIVES = {"itc": "vision.itc", "itm": "vision.itm"}
FEW = 25
"""Images that are also ranked with the same features: every pair of them is scored once more."""
FOLDS = 6  # most numbers of folds in a message, those nearest to the requested one


class Retrieval(DownstreamTask[RetrievalTuning, RetrievalScoring]):
    """The downstream task: recalls (0..1) and ranks, compared with those of a random order."""

    tuning = RetrievalTuning
    scoring = RetrievalScoring
    predicting = RetrievalPredicting
    gathers = True
    panels = ("vision.evaluation.task_panels:found", "vision.evaluation.task_panels:lost")

    def setup(self, tuning: RetrievalTuning, base: Recipe) -> Setup:
        trust_run(tuning.run, base, tuning.trust)
        stream = medium_of(base).stream
        spec = objective_spec(base, tuning.objective, tuning.hard_negatives, stream)
        sequence = caption_sequence(base, max_length=tuning.max_length)
        poolers = tuple(spec.get("pool") or ["text"]) if _is_a(spec, Itm) else ()
        sees = (stream,) if poolers else ()
        return Setup(sequence, spec, unit="captions", poolers=poolers, sees=sees)

    def open(self, scoring: RetrievalScoring | RetrievalPredicting) -> EvaluatedRun:
        """The run with its itc, or with its itm if it has none or re-ranks. Its components do not get the control: the
        same image is substituted when pairs are read."""
        if isinstance(scoring, RetrievalPredicting):
            run: EvaluatedRun = super().open(scoring)
            return run
        if not scoring.rerank and scoring.first_stage is not None:
            raise WorkbenchError("--first-stage names the run that finds candidates; add their number with --rerank")
        found = found_at(scoring.run, scoring.overrides or (), trust=scoring.trust)
        self.check_reads(found.recipe)
        loaded = opened(found)
        if scoring.rerank:
            wanted = "--rerank needs an itm that re-ranks"
            return find_comparing(loaded, scoring.run, "itm", wanted, **scoring.where)
        return self.chosen(loaded, scoring)

    def chosen(self, loaded: LoadedRun, options: RetrievalScoring | RetrievalPredicting) -> EvaluatedRun:
        wanted = f"train one: workbench finetune {self.name} {quoted(options.run)} TRAINING-SET"
        way = "itc" if _has(loaded, WAYS["itc"]) else "itm"
        return find_comparing(loaded, options.run, way, wanted, **options.where)

    def check_reads(self, recipe: Recipe) -> None:
        medium_of(recipe)

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: RetrievalScoring) -> Result:
        results = []
        parts = subsets_of(corpus, scoring.folds, scoring.limit, scoring.captions)
        stages: dict[str, Any] = {"k": scoring.rerank, "first_stage": scoring.first_stage, "trust": scoring.trust}
        stages["size"] = scoring.batch_size
        controls: list[dict[str, dict[str, float]]] = [{} for _ in parts]
        if scoring.control == SAME_FEATURES:
            parts = [with_same_features(run, corpus, part) for part in parts]
        else:
            controls = [_same_features(run, corpus, part, scoring.ties, stages) for part in parts]
            run.task.take_used(), run.task.take_dropped()  # these are counted when the unchanged images are read
        for part, control in zip(parts, controls, strict=True):
            found = score(run, corpus, part, **stages)
            result = retrieval_result(found, corpus, run.folder, scoring.ties, shown=run.world.is_main)
            result.baselines |= control
            results.append(result)
        return mean_of(results)

    def predict(
        self, run: EvaluatedRun, samples: list[Sample], number: int, predicting: RetrievalPredicting
    ) -> list[dict[str, Any]]:
        """The images of a corpus that fit each text best, or the captions that fit each image best."""
        corpus = Corpus.open(predicting.among)
        check_pairs(run, corpus, captioned=False)
        lines: dict[str, dict[str, Any]] = {}
        for images in (False, True):
            queries = [sample for sample in samples if ("image" in sample) == images]
            if queries:
                names, scores = ranked_among(run, corpus, queries, images, predicting.batch_size)
                best = scores.topk(min(predicting.best, len(names)))
                rows = zip(queries, best.values.tolist(), best.indices.tolist(), strict=True)
                lines |= {
                    str(query["key"]): {"key": str(query["key"])}
                    | {"prediction": [{**names[i], "score": score} for score, i in zip(values, of, strict=True)]}
                    for query, values, of in rows
                }
        return [lines[str(sample["key"])] for sample in samples]


def _same_features(
    run: EvaluatedRun, corpus: Corpus, part: ImageSubset, ties: str, stages: dict[str, Any]
) -> dict[str, dict[str, float]]:
    """The numbers for the first images of a fold with the features of one, and chance: anything better does not come
    from the images."""
    few = min(part.limit or FEW, FEW)
    if few < 2:
        return {}
    made = with_same_features(run, corpus, replace(part, limit=few))
    found = score(run, corpus, made, **stages)
    of = "" if few == part.limit else f", {few} images"
    numbers = retrieval_metrics(found.scores, found.owner, ties=ties, text_scores=found.text_scores)
    return {f"same features{of}": numbers, **({f"chance{of}": chance(found.owner, found.scores.images)} if of else {})}


def subsets_of(corpus: Corpus, folds: int, limit: int | None, captions: int | None) -> list[ImageSubset]:
    """The images in `folds` groups of equal size.

    Raises:
        WorkbenchError: the number of images is not divisible by `folds`.
    """
    images = min(corpus.records, limit or corpus.records)
    if images % folds:
        allowed = [number for number in range(1, min(images, folds) + 1) if images % number == 0]
        fix = f"allowed: --folds {', '.join(map(str, allowed[-FOLDS:]))}"
        if images > folds:
            fix += f", or --limit {images - images % folds}"
        raise WorkbenchError(f"--folds {folds}: {images:,} images cannot be split into {folds} of equal size; {fix}")
    size = images // folds
    return [ImageSubset(fold * size, size, captions) for fold in range(folds)]


def mean_of(results: list[Result]) -> Result:
    """The result of several folds: the means of their numbers, the sums of their counts."""
    first = results[0]
    if len(results) == 1:
        return first
    first.baselines = {
        name: {key: float(np.mean([each.baselines[name][key] for each in results])) for key in numbers}
        for name, numbers in first.baselines.items()
    }
    first.numbers = {key: float(np.mean([each.numbers[key] for each in results])) for key in first.numbers}
    first.counts = {name: sum(each.counts[name] for each in results) for name in first.counts}
    first.counts["folds"] = len(results)
    first.predictions = _joined([each.predictions for each in results if each.predictions.lines])
    return first


def _joined(folds: list[EvaluationItems]) -> EvaluationItems:
    """The items of several folds, each with its fold and its contribution to the mean over folds."""
    if not folds:
        return EvaluationItems()
    lines = [{**line, "fold": number} for number, items in enumerate(folds) for line in items.lines]
    tallies = {}
    for name, first in folds[0].tallies.items():
        if first.kind in ("mean", "means", "share"):
            rows = [items.tallies[name].rows for items in folds]
            padded = [
                np.pad(of, ((0, 0), (n * of.shape[1], (len(rows) - 1 - n) * of.shape[1]))) for n, of in enumerate(rows)
            ]
            tallies[name] = Tally("means", np.concatenate(padded))
    return EvaluationItems(lines, tallies)


def objective_spec(recipe: Recipe, name: str | None, hard: Way | None = None, stream: str = "image") -> Spec:
    """The run's own contrast or matching, whose head is trained further (`MediaContrast.tuned`); else one with the
    default options. With `hard` matching is trained as a ranking.

    Args:
        stream: the stream that is compared with the texts.

    Raises:
        WorkbenchError: an unknown name, no name for a run with neither, or hard negatives of a contrast.
    """
    if hard is not None:
        if name == "itc":
            raise WorkbenchError(
                "--hard-negatives need matching, which reads a text with an image; a contrast (itc) has all others "
                "of its batch as negatives. Add --objective itm, or remove one of the two"
            )
        of = next((s for s in _specs(recipe) if _is_a(s, Itm)), {"objective": OBJECTIVES["itm"]})
        kept = {option: of[option] for option in ("pool", "pooled_size") if option in of}
        return {"objective": "vision.ranking", "name": objective_name(of), "way": hard, **kept, **_of_stream(stream)}
    if name is not None and name not in OBJECTIVES:
        raise unknown("retrieval objective", name, OBJECTIVES)
    for way, kind in WAYS.items():
        for spec in _specs(recipe):
            resuming = _tuned(spec, kind) if name in (None, way) else None
            if resuming is not None:
                return resuming
    if name is None:
        raise WorkbenchError(
            f"the run {recipe.name!r} was trained with neither itc nor itm; choose one with --objective"
        )
    return {"objective": OBJECTIVES[name], **(_of_stream(stream) if name == "itc" else {})}


def _tuned(spec: Spec, kind: type) -> Spec | None:
    return find("objective", spec["objective"]).tuned(spec) if _is_a(spec, kind) else None


def _of_stream(stream: str) -> Spec:
    """The option of an objective that compares texts with another stream than `image`."""
    return {} if stream == "image" else {"image": stream}


def _specs(recipe: Recipe) -> list[Spec]:
    return [spec for task in recipe.tasks.values() for spec in task.objectives]


def _is_a(spec: Spec, kind: type) -> bool:
    """Whether an objective is of a class; the code of a user's run is trusted before this call."""
    return issubclass(find("objective", spec["objective"]), kind)


def retrieval_result(
    found: ScoredPairs,
    corpus: Corpus,
    run: Path,
    ties: str = "realistic",
    shown: bool = True,
) -> Result:
    """Recalls (0..1) and ranks of a fold's scores, compared with those of a random order.

    Examples, whose images are stored in the run, are `shown` or not.
    """
    owner, baselines = found.owner, {"chance": chance(found.owner, found.scores.images)}
    ranks = [
        rank_images(found.scores, owner, ties=ties),
        rank_texts(found.text_scores or found.scores, owner, ties=ties),
    ]
    numbers = rank_metrics(*ranks)
    return Result(
        task=Retrieval().name,
        numbers=numbers,
        counts={"texts": found.scores.texts, "images": found.scores.images},
        inputs=found.checkpoints,
        variant=f"{found.variant}, ties {ties}",
        baselines=baselines,
        examples=examples(found, owner, corpus, run) if shown else [],
        failures=failures(found, owner, corpus, run) if shown else [],
        predictions=EvaluationItems([*query_lines(found, owner, *ranks)], rank_tallies(*ranks))
        if shown
        else EvaluationItems(),
    )


def _has(loaded: LoadedRun, objective: type) -> bool:
    return any(isinstance(p.objective, objective) for task in loaded.tasks.values() for p in task.objectives)

"""Zero-shot image classification with named classes, by the vectors of a dual encoder.

The predicted class is the one whose words are nearest to the image (CLIP, arXiv:2103.00020, section 3.1). A class has
the mean of the vectors of its prompts, one for each template, normalised again (section 3.1.4). Of equal scores each
class has the mean rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from vision.evaluation.retrieval.retrieval_corpus import Pairs, PairVectors, image_of, pair_vectors
from vision.evaluation.task_options import PHOTO, ZeroShotPredicting, ZeroShotScoring
from vision.metrics.retrieval_scores import best_products
from vision.objectives._comparing import MediaContrast
from workbench.core.errors import WorkbenchError, unknown
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.generation import without_captions
from workbench.evaluation.finetuning.labels import chosen_label
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.example_images import keep_image
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.result import Result
from workbench.metrics.ranks import realistic_ranks
from workbench.metrics.tallies import Tally
from workbench.sequences.builders.image_caption import ImageCaptionBuilder
from workbench.sequences.image_stream import QUESTION_ONLY
from workbench.sequences.sequence import Sample

EXAMPLES = 12
BEST = 5


class ZeroShot(DownstreamTask[Tuning, ZeroShotScoring]):
    """The downstream task: classes of images by the vectors of their names."""

    scoring = ZeroShotScoring
    predicting = ZeroShotPredicting
    objective = MediaContrast
    gathers = True
    panels = ("vision.evaluation.task_panels:classified",)

    def open(self, scoring: ZeroShotScoring | ZeroShotPredicting) -> EvaluatedRun:
        if scoring.control == QUESTION_ONLY:
            raise WorkbenchError(
                f"--control {QUESTION_ONLY}: a record without its image cannot be classified; remove --control"
            )
        found: EvaluatedRun = super().open(scoring)
        return found

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: ZeroShotScoring) -> Result:
        classes = read_classes(scoring.labels)
        templates = scoring.template or [PHOTO]
        check_templates(templates)
        label, counts = chosen_label(corpus, scoring.label, example='"dog"')
        check_known(counts, classes, scoring.labels)
        names = list(classes)
        prompts = [template.replace("{}", classes[name]) for name in names for template in templates]
        vectors, right, shown, keys = _scored(run, corpus, scoring, label, prompts)
        scores = best_products(_of_classes(vectors.text, len(names)), vectors.image).T
        gold = np.array([names.index(name) for name in right])
        ranks, _ = realistic_ranks(scores.numpy(), gold, (gold[:0], gold[:0]))
        predicted = scores.argmax(1).numpy()
        tallies = {"accuracy": Tally.share(ranks == 1)}
        chance = {"accuracy": 1 / len(names)}
        if len(names) > BEST:
            tallies[f"accuracy_{BEST}"] = Tally.share(ranks <= BEST)
            chance[f"accuracy_{BEST}"] = BEST / len(names)
        tallies["mean_class_accuracy"] = Tally.of("macro_recall", gold, predicted, ranks == 1)
        chance["mean_class_accuracy"] = 1 / len(names)
        most = Counter(right).most_common(1)[0][1] / len(right)
        chosen = [names[number] for number in predicted.tolist()]
        lines = [
            {"key": key, "gold": of, "prediction": made, "rank": rank, "scores": dict(zip(names, row, strict=True))}
            for key, of, made, rank, row in zip(keys, right, chosen, ranks.tolist(), scores.tolist(), strict=True)
        ]
        return Result(
            task=self.name,
            numbers={name: tally.whole for name, tally in tallies.items()},
            counts={"images": len(right), "classes": len(names), "templates": len(templates)},
            variant="prompts: " + "; ".join(templates),
            baselines={
                "chance": chance,
                "most frequent class": {"accuracy": most, "mean_class_accuracy": 1 / len(set(right))},
            },
            examples=[
                {
                    "key": str(one["key"]),
                    "label": of,
                    "image": keep_image(run.folder, one.get("image", b"")),
                    "prediction": made,
                }
                for one, of, made in zip(shown, right, chosen, strict=False)
                if run.world.is_main
            ],
            predictions=EvaluationItems(lines, tallies),
        )

    def predict(
        self, run: EvaluatedRun, samples: list[Sample], number: int, predicting: ZeroShotPredicting
    ) -> list[dict[str, Any]]:
        """The class of each image, with the cosine of each class's words."""
        classes, templates = read_classes(predicting.labels), predicting.template or [PHOTO]
        check_templates(templates)
        _check_builder(run)
        prompts = [template.replace("{}", words) for words in classes.values() for template in templates]
        first, *more = _parts(prompts, predicting.batch_size)
        groups = [_Group(samples, samples[0], first), *(_Group([], samples[0], part) for part in more)]
        vectors = pair_vectors(run, groups, lambda _, group: _pairs(run, group))
        scores = best_products(_of_classes(vectors.text, len(classes)), vectors.image).T
        names = list(classes)
        return [
            {"key": str(sample["key"]), "prediction": names[int(row.argmax())]}
            | {"scores": dict(zip(names, row.tolist(), strict=True))}
            for sample, row in zip(samples, scores, strict=True)
        ]


def _of_classes(vectors: Tensor, classes: int) -> Tensor:
    """The vectors of classes, of those of their prompts in order."""
    return F.normalize(vectors.unflatten(0, (classes, -1)).mean(1), dim=-1)


def _check_builder(run: EvaluatedRun) -> None:
    """
    Raises:
        WorkbenchError: the run's task has no images with captions.
    """
    if not isinstance(run.task.builder, ImageCaptionBuilder):
        raise WorkbenchError(f"{run.folder}: zero-shot classification needs a task with the builder image_caption")


def read_classes(file: Path) -> dict[str, str]:
    """The classes of a file, and the words of each in prompts.

    Raises:
        WorkbenchError: the file does not exist, is not UTF-8, has fewer than two classes, or one twice.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WorkbenchError(f"--labels {file}: {error}; needed: a text file with a class in each line") from error
    classes: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, _, words = (part.strip() for part in line.partition("\t"))
        if name in classes:
            raise WorkbenchError(f"--labels {file}, line {number}: the class {name!r} occurs twice")
        if name:
            classes[name] = words or name
    if len(classes) < 2:
        raise WorkbenchError(f"--labels {file} names {len(classes)} classes; needed: two or more, one in each line")
    return classes


def check_templates(templates: list[str]) -> None:
    """
    Raises:
        WorkbenchError: a template has no place for the class.
    """
    for template in templates:
        if "{}" not in template:
            raise WorkbenchError(f'--template {template!r} has no place for the class; write "{PHOTO}"')


def check_known(counts: Counter[str], classes: dict[str, str], file: Path) -> None:
    """
    Raises:
        WorkbenchError: the corpus has a class that the file does not name.
    """
    lacking = sorted(counts.keys() - classes.keys())
    if lacking:
        raise unknown(
            "class", lacking[0], classes, f"--labels {file} ({len(lacking)} classes of the corpus are missing)"
        )


class _Group(NamedTuple):
    """Labelled images, and prompts, which the builder adds as captions of the first one."""

    samples: list[Sample]
    first: Sample
    prompts: list[str]


def _scored(
    run: EvaluatedRun, corpus: Corpus, scoring: ZeroShotScoring, label: str, prompts: list[str]
) -> tuple[PairVectors, list[str], list[Sample], list[str]]:
    """The vectors of the prompts and of the images, the images' classes, the first images, and the keys of all."""
    _check_builder(run)
    right: list[str] = []
    shown: list[Sample] = []
    keys: list[str] = []

    def groups() -> Iterator[_Group]:
        for samples in sample_pass([corpus], size=scoring.batch_size, unit=None, limit=scoring.limit):
            kept = [sample for sample in samples if label in sample.get("labels", {})]
            if not kept:
                continue
            first, *more = [[]] if right else _parts(prompts, scoring.batch_size)
            right.extend(str(sample["labels"][label]) for sample in kept)
            keys.extend(str(sample["key"]) for sample in kept)
            shown.extend(kept[: EXAMPLES - len(shown)])
            yield _Group(kept, kept[0], first)  # together, to check whether texts attend to images
            yield from (_Group([], kept[0], part) for part in more)

    found = pair_vectors(run, groups(), lambda _, group: _pairs(run, group))
    if not right:
        raise WorkbenchError(f"corpus {corpus.name!r}: none of the first {scoring.limit} images has a label {label!r}")
    return found, right, shown, keys


def _pairs(run: EvaluatedRun, group: _Group) -> Pairs:
    texts, images = [], []
    if group.prompts:
        texts = run.task.sequences([{**without_captions([group.first])[0], "captions": group.prompts}])
    if group.samples:
        images = run.task.sequences(without_captions(group.samples))
    return Pairs([one.alone("text") for one in texts], [image_of(run, one) for one in images], owner=[0] * len(texts))


def _parts(prompts: list[str], size: int) -> list[list[str]]:
    """Items in groups of `size`."""
    return [prompts[first : first + size] for first in range(0, len(prompts), size)]

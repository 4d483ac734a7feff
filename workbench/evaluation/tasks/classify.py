"""Classification of a text, a pair of texts, or a caption with its images: accuracy, macro F1, Matthews correlation.

Examples are sentiment, natural language inference and paraphrases, captions with images (SNLI-VE, NLVR2), and speech
(intents, speakers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import torch

from workbench.core.errors import WorkbenchError, unknown
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.encoder_probe import by_untouched_encoder
from workbench.evaluation.finetuning.inheritance import spoken_sequence, text_sequence
from workbench.evaluation.finetuning.labels import (
    check_varied,
    chosen_label,
    label_counts,
    labelled,
    ordered,
    warn_alike,
)
from workbench.evaluation.options import Predicting
from workbench.evaluation.scoring.asked import paired, with_probabilities
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.image_sequences import image_sequence
from workbench.evaluation.scoring.objective_task import GatheredTensors, ObjectiveTask
from workbench.evaluation.task_options import ClassifyPredicting, ClassifyScoring, ClassifyTuning, LabelTuning
from workbench.metrics.classes import by_class, class_counts, unknown_classes
from workbench.objectives.classify import OTHER_SET, UNLABELLED, Classify
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample

PROBE = "linear probe of the untouched encoder"


class Classification(ObjectiveTask[LabelTuning, ClassifyScoring]):
    """One class for a text, for a pair, for a caption with images, or for speech."""

    tuning: type[LabelTuning] = ClassifyTuning
    scoring = ClassifyScoring
    predicting: type[Predicting] | None = ClassifyPredicting
    objective: type[Objective] = Classify
    panels = ("workbench.evaluation.task_panels:classified",)

    def setup(self, tuning: LabelTuning, base: Recipe) -> Setup:
        assert isinstance(tuning, ClassifyTuning)
        objective = class_objective(tuning)
        corpus = Corpus.open(tuning.corpus)
        if corpus.kind == "image-text":
            _check_media(corpus, tuning.media)
            sequence = image_sequence(base, "image_caption", max_length=tuning.max_length, media=tuning.media)
            sees, images = ("image",), len(tuning.media or "1")
            return Setup(sequence, objective, unit="captions", poolers=("text",), sees=sees, images=images)
        if corpus.kind == "speech-text" and not tuning.media:
            heard, stream = spoken_sequence(base, tuning.max_length)
            return Setup(heard, objective, poolers=("text",), sees=(stream,))
        if tuning.media:
            raise WorkbenchError(
                f"--media: corpus {corpus.name!r} holds {corpus.kind}, which has no images; take an image-text corpus"
            )
        sequence = text_sequence(base, "sentence_pair", tuning.max_length, split=False)
        return Setup(sequence, objective, poolers=("text",))

    def prepare(self, objective: Classify, corpus: Corpus, scoring: ClassifyScoring) -> None:
        objective.label = (
            objective.label or chosen_label(corpus, None, option="tasks.classify.objectives.0.label=NAME")[0]
        )
        found = label_counts(islice(corpus, scoring.limit)).get(objective.label, Counter())
        if found and not found.keys() & objective.classes.keys():
            where = f"label {objective.label!r} of corpus {corpus.name!r}"
            raise unknown("class", next(iter(found)), objective.classes, where, advice=OTHER_SET)
        objective.read_as(found)

    def unknown(self, objective: Classify, made: GatheredTensors) -> dict[str, int]:
        return unknown_classes(made["gold"].numpy(), objective.names, len(objective.classes))

    def needs(self, objective: Classify) -> str:
        return f"texts with the label {objective.label!r}"

    def counts(self, objective: Classify, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        return {"texts": len(made["gold"]), "classes": len(objective.classes)}

    def variant(self, objective: Classify, scoring: ClassifyScoring) -> str:
        return f"label {objective.label}"

    def counted(self, objective: Classify, targets: Mapping[str, Any]) -> int:
        return int((targets["labels"] != UNLABELLED).sum()) if "labels" in targets else 0

    def predictions(self, objective: Classify, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        """A labelled text an item, with the score (logit) of each class."""
        names = objective.names
        rows = zip(keys, made["gold"].tolist(), made["predicted"].tolist(), strict=True)
        lines: list[dict[str, Any]] = [{"key": k, "gold": names[right], "prediction": names[p]} for k, right, p in rows]
        for line, row in zip(lines, made["scores"].tolist() if "scores" in made else (), strict=False):
            line["scores"] = dict(zip(objective.classes, row, strict=True))
        return EvaluationItems(lines, objective.tallies(made))

    def asked(self, run: EvaluatedRun, sample: Sample, predicting: Any) -> Sample:
        objective = run.objective.objective
        assert isinstance(objective, Classify)
        any_class = {**sample.get("labels", {}), objective.label: next(iter(objective.classes))}
        return {**paired(sample, predicting), "labels": any_class}

    def answered(self, objective: Classify, line: dict[str, Any], sample: Sample) -> dict[str, Any]:
        return with_probabilities(line)

    def baselines(
        self, run: EvaluatedRun, objective: Classify, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """Always the training set's most frequent class; a probe of the encoder before the fine-tuning, where it is
        cheap."""
        trained = run.trained_on()
        if trained is None:
            return {}
        counts = label_counts(trained)[objective.label]
        most = min(counts, key=lambda name: (-counts[name], name))
        always = torch.full_like(made["gold"], objective.classes[most])
        known, gold = labelled(trained, objective.label, objective.classes)
        tested, _ = labelled(list(samples), objective.label, objective.rows)
        probed = by_untouched_encoder(run, known, gold, tested)
        guesses = {f"always {most}": always}
        if probed is not None and len(probed) == len(always):
            guesses[PROBE] = torch.from_numpy(probed)
        return {name: {**made, "predicted": guess} for name, guess in guesses.items()}

    def classes(self, objective: Classify, made: GatheredTensors) -> dict[str, dict[str, float]]:
        return by_class(class_counts(made["predicted"].numpy(), made["gold"].numpy(), objective.names))

    def example(self, objective: Classify, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        names = objective.names
        classes = {"prediction": names[int(made["predicted"])], "label": names[int(made["gold"])]}
        text = next(sample[name] for name in ("text", "transcript", "captions") if name in sample)
        text = text if isinstance(text, str) else text[0]
        return {"text": text, "second": sample.get("second", ""), **classes}


def class_objective(tuning: LabelTuning) -> dict[str, Any]:
    """The objective `classify` on the chosen label, with the classes of the training set and the held-out set.

    Raises:
        WorkbenchError: the training set has no labels, several and none was chosen, or one class only.
    """
    corpus = Corpus.open(tuning.corpus)
    label, counts = chosen_label(corpus, tuning.label)
    check_varied(corpus, label, counts)
    warn_alike(corpus.name, label, counts)
    held_out = label_counts(Corpus.open(tuning.held_out)) if tuning.held_out else {}
    return {"objective": "classify", "classes": ordered({*counts, *held_out.get(label, ())}), "label": label}


def _check_media(corpus: Corpus, media: list[str] | None) -> None:
    """The error for records with several images and no `image`, if --media names none."""
    if media or corpus.manifest.fields.get("image") or not corpus.manifest.fields.get("media"):
        return
    names = next(sample["media"] for sample in corpus if "media" in sample)
    raise WorkbenchError(
        f"corpus {corpus.name!r} has several media a record; name the images that are read, in their order: "
        f"{' '.join(f'--media {name}' for name in names)}"
    )

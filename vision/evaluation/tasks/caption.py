"""Captioning of images or videos: BLEU and CIDEr-D against several references.

The run predicts captions of unseen images or videos token by token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from vision.evaluation.task_options import CaptionPredicting, CaptionScoring, CaptionTuning
from vision.metrics.caption_scores import caption_scores, caption_tallies, words_of
from workbench.components.building import find, options_of
from workbench.components.controls import check_control
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.generation import Generator, without_captions
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, of_task
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.example_images import keep_image
from workbench.evaluation.scoring.image_sequences import caption_sequence, media_of, medium_of
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.rank_shares import shared_groups
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.writers import ADVICE, find_writer, recipes_that_write
from workbench.interop.run_or_checkpoint import load
from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe, TaskSpec
from workbench.runs.folder import trust_run
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.builders.image_caption import ImageCaptionBuilder
from workbench.sequences.image_stream import QUESTION_ONLY
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer

EXAMPLES = 12
OF_PEOPLE = "its own first caption"
VARIANT = (
    "BLEU without smoothing, CIDEr-D with this corpus's frequencies; words of 13a, lower case, no signs; times 100"
)


@dataclass
class CaptionedImage:
    """One image, or segment of a video: the predicted caption, and the references."""

    key: str
    prediction: str
    references: list[str]


class Caption(DownstreamTask[CaptionTuning, CaptionScoring]):
    """The downstream task of captioning images and videos."""

    tuning = CaptionTuning
    scoring = CaptionScoring
    predicting = CaptionPredicting
    objective: type[Objective] = Objective
    gathers = True
    panels = ("vision.evaluation.task_panels:written",)

    def setup(self, tuning: CaptionTuning, base: Recipe) -> Setup:
        trust_run(tuning.run, base, tuning.trust)
        tokenizer = None if base.tokenizer is None else Tokenizer.load(base.tokenizer)
        medium = medium_of(base)
        tasks = [task.evaluating() for task in tasks_of(base, tokenizer).values()]
        writer = find_writer(tasks, tuning.network, advice=lambda: _advice(medium.builder, tokenizer))
        stream = writer.continuation.stream
        options = _written(writer.task.spec, stream)
        known = options_of(find("builder", medium.builder)).names
        sequence = caption_sequence(
            base, max_length=tuning.max_length, **{name: value for name, value in options.items() if name in known}
        )
        placed = ("network", "view", "after")
        objective = {name: value for name, value in writer.placed.stated.items() if name not in placed}
        return Setup(sequence, objective, unit="captions", sees=(medium.stream,))

    def open(self, scoring: CaptionScoring | CaptionPredicting) -> EvaluatedRun:
        loaded = load(scoring.run, scoring.overrides or (), control=scoring.control, trust=scoring.trust)
        return self.chosen(loaded, scoring)

    def chosen(self, loaded: LoadedRun, options: CaptionScoring | CaptionPredicting) -> EvaluatedRun:
        loaded = of_task(loaded, options.run, options.task)
        tasks = {
            name: task
            for name, task in loaded.tasks.items()
            if isinstance(task.builder, ImageCaptionBuilder)
            and (task.builder.image.part or options.control == QUESTION_ONLY)
        }
        if not tasks:
            raise WorkbenchError(
                f"{options.run} has no task of captions with images or videos; pretrain a run that predicts captions "
                "(clm, a decoder), or fine-tune a run that does: workbench finetune caption RUN TRAINING-SET"
            )
        try:
            of = next(iter(tasks.values())).builder.caption_builder
            find_writer(
                [task.evaluating() for task in tasks.values()],
                options.network,
                advice=lambda: _advice(of, loaded.tokenizer),
                objective=options.objective,
            )
            loaded = replace(loaded, tasks=tasks)
            generator = Generator(loaded, network_name=options.network, objective=options.objective)
        except WorkbenchError as error:
            raise WorkbenchError(f"{options.run}: {error}") from error
        opened = EvaluatedRun(generator.loaded, generator.task, generator.placed, options.run)
        check_control(options.control, opened.parts, str(options.run))
        return opened

    def predict(
        self, run: EvaluatedRun, samples: list[Sample], number: int, predicting: CaptionPredicting
    ) -> list[dict[str, Any]]:
        """A caption of each image, or of each segment of a video."""
        decoding = predicting.decoding(run.task.builder.max_length - 1)
        generator = Generator(run.loaded, decoding, predicting.network, objective=predicting.objective)
        media = [(str(sample["key"]), each) for sample in samples for each in media_of(generator.task, [sample])]
        made = generator(without_captions([each for _, each in media]))
        return [
            {"key": str(each["key"]), "record": record, "prediction": generator.spelling.text(text.tokens).strip()}
            for (record, each), text in zip(media, made, strict=True)
        ]

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: CaptionScoring) -> Result:
        if not corpus.manifest.lengths.get("captions"):
            raise WorkbenchError(
                f"corpus {corpus.name!r} has no captions (it has {', '.join(corpus.manifest.fields)}); the captions "
                "of a run are scored against references"
            )
        decoding = scoring.decoding(run.task.builder.max_length - 1)  # the end is predicted, the beginning is not
        generator = Generator(run.loaded, decoding, scoring.network, objective=scoring.objective)
        found, images = _captioned_images(generator, corpus, scoring, run.world)
        if not found:
            raise WorkbenchError(
                f"corpus {corpus.name!r} has no image with a caption; evaluate on a corpus with captions"
            )
        references = [each.references for each in found]
        tallies = caption_tallies([each.prediction for each in found], references)
        lines = [{"key": each.key, "gold": each.references, "prediction": each.prediction} for each in found]
        return Result(
            task=self.name,
            numbers={name: tally.whole for name, tally in tallies.items()},
            counts={"images": len(found), "references": sum(map(len, references))},
            variant=VARIANT,
            baselines=baselines(references, run.trained_on()),
            bounds=[OF_PEOPLE],
            examples=[
                {**vars(each), "image": keep_image(run.folder, images.get(each.key, b""))}
                for each in found[:EXAMPLES]
                if run.world.is_main
            ],
            predictions=EvaluationItems(lines, tallies),
        )


def _written(spec: TaskSpec, stream: str) -> dict[str, Any]:
    """Options of the builder for captions that are written into a stream: a decoder's text is left empty."""
    stated: dict[str, Any] = spec.sequence.builder if isinstance(spec.sequence.builder, dict) else {}
    ends: dict[str, Any] = {name: stated[name] for name in ("begin", "end") if name in stated}
    if stream != "text":
        return {"target": stream, **ends}
    kept = {name: stated[name] for name in ("captions",) if name in stated}
    return {"visibility": spec.sequence.visibility or "causal", **ends, **kept}


def _advice(builder: str, tokenizer: Tokenizer | None) -> str:
    """The advice if no objective writes captions."""
    able = ", ".join(recipes_that_write(builder, tokenizer))
    return f"pretrain a recipe that does, on the same corpora: {able}" if able else ADVICE


def baselines(references: list[list[str]], training: list[Sample] | None) -> dict[str, dict[str, float]]:
    """Baselines without a model, with the same scores."""
    found = {}
    if training:
        words = Counter(" ".join(words_of(caption)) for sample in training for caption in sample.get("captions", ()))
        if words:
            found["most frequent caption"] = caption_scores([words.most_common(1)[0][0]] * len(references), references)
    if len(references) > 1:
        moved = [each[0] for each in [*references[1:], references[0]]]
        found["another image's caption"] = caption_scores(moved, references)
    if all(len(each) > 1 for each in references):
        found[OF_PEOPLE] = caption_scores([e[0] for e in references], [e[1:] for e in references])
    return found


def _captioned_images(
    generator: Generator, corpus: Corpus, scoring: CaptionScoring, world: World
) -> tuple[list[CaptionedImage], dict[str, bytes]]:
    """The references of every image with a caption, and the first of these images by their keys; the ranks share the
    images."""
    images: dict[str, bytes] = {}

    def groups() -> Iterator[list[Sample]]:
        for samples in sample_pass([corpus], size=scoring.batch_size, unit=None, limit=scoring.limit):
            kept = [sample for sample in samples if any(caption.strip() for caption in sample.get("captions", ()))]
            images.update((str(sample["key"]), sample.get("image", b"")) for sample in kept[: EXAMPLES - len(images)])
            if kept:
                yield kept

    def captioned(_: int, samples: list[Sample]) -> list[CaptionedImage]:
        media = [each for each in media_of(generator.task, samples) if any(map(str.strip, each["captions"]))]
        texts = [generator.spelling.text(made.tokens).strip() for made in generator(without_captions(media))]
        return [
            CaptionedImage(str(sample["key"]), text, list(sample["captions"]))
            for sample, text in zip(media, texts, strict=True)
        ]

    return [each for part in shared_groups(world, groups(), captioned) for each in part], images

"""Options of the commands of the tasks caption, retrieval, vqa and zero-shot; torch is not needed to read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from vision.choices import Ties, Way
from vision.metrics.vqa_accuracy import Variant
from workbench.core.options.bounds import Count, CountOrZero, Name, Place, Question
from workbench.evaluation.options import BatchSize, Epochs, Predicting, Scoring, TextDecoding, Tuning, WritingScoring
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import StoredFolder

SameFeatures = Annotated[
    Literal["same-features"] | None,
    typer.Option(
        help="same-features: all images have the features of the first one. (A run without the pairing: "
        "finetune retrieval --control shuffled-captions.)"
    ),
]
MinCount = Annotated[
    Count | None,
    typer.Option(
        help="Minimum frequency of an answer: the number of questions whose main answer it is; default: 9 from 100,000 "
        "questions on, 3 from 1,000 on, else 1."
    ),
]


@dataclass(frozen=True, kw_only=True)
class CaptionTuning(Tuning):
    """Fine-tune a pretrained run to write captions.

    CORPUS holds images or videos with `captions`. RUN can continue the text of a pair (CoCa, a joint stack with clm),
    or has a decoder (UniVL), which captions the image or the video alone: the text is left empty. Fine-tuning uses the
    objective of its pretraining.

    Examples:

      workbench finetune caption runs/coca corpora/flickr-train --epochs 5
    """

    max_length: Annotated[Count | None, typer.Option(help="Tokens of a caption; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class CaptionScoring(WritingScoring):
    """BLEU 1 to 4 and CIDEr-D of a run's captions, times 100, compared with baselines.

    CORPUS holds images or videos with one or more `captions`, all of which are references. In videos with
    `caption_times` the clips of each caption's time are described. The baselines: the most frequent caption of the
    training set for every image; the first caption of another image; and for images with several, the first one scored
    against the others, as the level of people. The captions are written to a .jsonl file next to the result.

    Examples:

      workbench evaluate caption runs/coca corpora/flickr-test --beams 3

      workbench evaluate caption runs/coca corpora/flickr-test --max-new-tokens 20 --limit 100
    """


@dataclass(frozen=True, kw_only=True)
class RetrievalTuning(Tuning):
    """Fine-tune a pretrained run for retrieval between captions and images or videos.

    CORPUS holds images with `captions`, or videos with these, where each caption is to find the clips of its time. The
    control shuffled-captions trains on the captions of other images. Batches are larger than those of other tasks, as
    they hold the negatives of the contrast.

    Examples:

      workbench finetune retrieval runs/clip corpora/flickr-train --output runs/clip-flickr

      workbench finetune retrieval runs/uniter corpora/flickr-train --objective itm

      workbench finetune retrieval runs/uniter corpora/flickr-train --hard-negatives margin --batch-size 32

      workbench finetune retrieval runs/univl corpora/clips --objective itm --batch-size 32
    """

    epochs: Epochs = 5.0
    batch_size: BatchSize = 64
    objective: Annotated[
        Literal["itc", "itm"] | None,
        typer.Option(help="Dual encoder (itc) or matching (itm); default: the run's own objective."),
    ] = None
    hard_negatives: Annotated[
        Way | None,
        typer.Option(help="Matching against the hardest of each batch: by a margin (UNITER), as a choice (ViLBERT)."),
    ] = None
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a caption; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class RetrievalScoring(Scoring):
    """Recall at 1, 5 and 10 and median rank of image and text retrieval, compared with chance and same features.

    CORPUS holds images or videos with one or more `captions`; RUN has an itc, an itm or the like among its objectives.
    Without --rerank a run is ranked by its itc if it has one, and else by its itm: a forward pass for every pair. In
    videos with `caption_times` a caption is to find the clips of its time among those of all captions. As a check for
    leaks the first images are also ranked with the same features for all (with --control same-features all images are):
    anything better than chance there is a leak. COCO's 1k protocol is the mean over five folds of its 5,000 test
    images.

    Examples:

      workbench evaluate retrieval runs/clip corpora/flickr-test

      workbench evaluate retrieval runs/clip corpora/coco-test --captions 5 --folds 5

      workbench evaluate retrieval runs/uniter-retrieval corpora/flickr-test --rerank 20 --first-stage runs/clip
    """

    control: SameFeatures = None  # type: ignore[assignment]  # no other one is measured here
    rerank: Annotated[CountOrZero, typer.Option(help="Number of itc's candidates that itm re-ranks; 0: none.")] = 0
    first_stage: Annotated[
        StoredFolder | None, typer.Option(help="With --rerank: the run whose itc finds the candidates; default: RUN.")
    ] = None
    ties: Annotated[
        Ties, typer.Option(help="Equal scores count half a place (realistic) or a whole one (pessimistic).")
    ] = "realistic"
    batch_size: Annotated[Count, typer.Option(help="Images (videos), or pairs with a caption, in a batch.")] = 128
    folds: Annotated[
        Count, typer.Option(help="Number of folds of the images, each ranked separately; the mean is reported.")
    ] = 1
    captions: Annotated[Count | None, typer.Option(help="Only this many first captions of each image (COCO: 5).")] = (
        None
    )
    limit: Annotated[Count | None, typer.Option(help="Only this many first images.")] = None


@dataclass(frozen=True, kw_only=True)
class VqaTuning(Tuning):
    """Fine-tune a pretrained run to answer questions about images.

    CORPUS holds images with `questions`. The control question-only trains without the images.

    Examples:

      workbench finetune vqa runs/uniter corpora/vqa-train --epochs 4 --output runs/uniter-vqa

      workbench finetune vqa runs/uniter corpora/vqa-train --answers-of corpora/vqa-val

      workbench finetune vqa runs/uniter corpora/vqa-train --control question-only -o runs/uniter-vqa-blind

      workbench finetune vqa runs/clip corpora/vqa-train --read fused --epochs 8 --lr 1e-3
    """

    answers: Annotated[
        Path | None, typer.Option(help="Vocabulary (a JSON list of answers); default: the answers of CORPUS.")
    ] = None
    answers_of: Annotated[
        list[Place] | None,
        typer.Option(
            metavar="CORPUS",
            help="Add the answers of this corpus to the vocabulary (VQA v2: train and val). Repeatable.",
        ),
    ] = None
    min_count: MinCount = None
    read: Annotated[
        Literal["pooled", "fused"] | None,
        typer.Option(
            help="The head's input: the text's pooled output, which must see the image, or the product of the mean "
            "rows of text and image; default: fused for a dual encoder (only contrasts), else pooled."
        ),
    ] = None
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a question; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class VqaScoring(WritingScoring):
    """VQA accuracy by the official rules, or ANLS, by answer type, compared with the majority answer.

    CORPUS holds images with `questions` and their answers. If they have none, as in the splits of test servers, the
    command only writes a file of predictions. RUN has been fine-tuned for the task, or was trained on conversations
    about images (llava). Such a run writes its answers, each question by itself. The options of generation are for such
    runs alone.

    Examples:

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-val

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-val --control question-only

      workbench evaluate vqa runs/llava corpora/docvqa-val --variant anls --max-new-tokens 20

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-test --predictions results.json

      workbench evaluate vqa runs/uniter-gqa corpora/gqa-test --gqa-predictions results.json

      workbench evaluate vqa runs/uniter-daquar corpora/daquar-test --wordnet /usr/share/wordnet
    """

    variant: Annotated[
        Variant | None,
        typer.Option(
            help="Default: the corpus's own rule (DocVQA's: anls); else official_2015, or single_answer where most "
            "questions have one answer."
        ),
    ] = None
    predictions: Annotated[
        OutputFile | None,
        typer.Option(
            help="Write the answers to this file: FILE.json for VQA's test server (question_id, answer), "
            "else lines of JSON (.jsonl)."
        ),
    ] = None
    gqa_predictions: Annotated[
        OutputFile | None,
        typer.Option(help="The same in the form of GQA's test server: JSON, {questionId, prediction}."),
    ] = None
    wordnet: Annotated[
        Path | None,
        typer.Option(help="WordNet's folder (data.noun, index.noun): also accuracy over sets, WUPS at 0.9 and 0.0."),
    ] = None
    batch_size: Annotated[Count, typer.Option(help="Images in a batch, with all their questions.")] = 32


PHOTO = "a photo of a {}"


@dataclass(frozen=True, kw_only=True)
class ZeroShotScoring(Scoring):
    """Accuracy (the first class, and one of the first five) of a run with a contrast (itc) without training on the
    classes, compared with chance and the most frequent class.

    CORPUS holds images with `labels`: the name of a class by the label's name. --labels is a file with a class in each
    line, spelt as in CORPUS; words for the prompts may follow after a tab. With several templates the mean of their
    vectors is used.

    Examples:

      workbench evaluate zero-shot runs/clip corpora/animals --labels animals.txt

      workbench evaluate zero-shot runs/clip corpora/animals --labels animals.txt --template "a photo of a {}" \
--template "a drawing of a {}"
    """

    labels: Annotated[Path, typer.Option(help="The classes, one in each line; words for prompts after a tab.")]
    template: Annotated[
        list[Name] | None, typer.Option(help=f"A prompt with {{}} for the class. Repeatable; default: {PHOTO}")
    ] = None
    label: Annotated[Name | None, typer.Option(help="Which label of CORPUS; default: the only one.")] = None


@dataclass(frozen=True, kw_only=True)
class VqaPredicting(TextDecoding, Predicting):
    """The most probable answer to a question about each image, or the one that the run writes, with its probability.

    INPUT has images. Their question is --question, or the `questions` of a corpus.

    Example:

      workbench predict vqa runs/uniter-vqa photo.jpg --question "What colour is the car?"
    """

    question: Annotated[Question | None, typer.Option(help="The question about each image.")] = None


@dataclass(frozen=True, kw_only=True)
class CaptionPredicting(TextDecoding, Predicting):
    """A caption of each image, or of each clip of a video.

    Example:

      workbench predict caption runs/coca photo.jpg --beams 3
    """


@dataclass(frozen=True, kw_only=True)
class ZeroShotPredicting(Predicting):
    """The class of each image, with the cosine of each class's words.

    Example:

      workbench predict zero-shot runs/clip photo.jpg --labels animals.txt
    """

    labels: Annotated[Path, typer.Option(help="The classes, one in each line; words for prompts after a tab.")]
    template: Annotated[
        list[Name] | None, typer.Option(help=f"A prompt with {{}} for the class. Repeatable; default: {PHOTO}")
    ] = None


@dataclass(frozen=True, kw_only=True)
class RetrievalPredicting(Predicting):
    """The images of a corpus that fit each text best, or the captions of a corpus that fit each image best.

    Examples:

      workbench predict retrieval runs/clip "a red circle" --among corpora/photos --best 5

      workbench predict retrieval runs/clip photo.jpg --among corpora/photos
    """

    among: Annotated[Place, typer.Option(help="The corpus of images, or of images with captions, that is searched.")]
    best: Annotated[Count, typer.Option(help="Number of images, or captions, for each INPUT.")] = 10

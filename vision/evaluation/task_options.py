"""What the task caption is told on the command line; torch is not needed to read it.

What the task retrieval is told on the command line; torch is not needed to read it.

What the task vqa is told on the command line; torch is not needed to read it.

What the task zero-shot is told on the command line; torch is not needed to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from vision.answers.metric import Variant
from vision.choices import Ties, Way
from workbench.core.options.bounds import Count, CountOrZero, Location, Name
from workbench.evaluation.options import BatchSize, Epochs, Scoring, Tuning, WritingScoring
from workbench.runs.output_places import OutputFile


@dataclass(frozen=True, kw_only=True)
class CaptionTuning(Tuning):
    """Fine-tune a pretrained run to write captions.

    CORPUS holds images or videos with `captions`. RUN is one that can continue with the text of a pair (CoCa, a joint
    stack
    with clm), or has a decoder (UniVL), which then writes of the image or the video alone: the text is left empty. It
    continues by the objective that it was pretrained with.

    Examples:

      workbench finetune caption runs/coca corpora/flickr-train --epochs 5
    """

    max_length: Annotated[Count | None, typer.Option(help="Tokens of a caption; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class CaptionScoring(WritingScoring):
    """BLEU 1 to 4 and CIDEr-D of the captions that a run writes, times 100, next to those of no model.

    CORPUS holds images or videos with one or more `captions`, all of which are references; of videos with
    `caption_times`
    the clips of each caption's time are described. The baselines: the most frequent caption of the training set for
    every image; the first caption of another image; and where images have several, the first one next to the others, as
    a person is worth. What was written is next to the result (.jsonl).

    Examples:

      workbench evaluate caption runs/coca corpora/flickr-test --beams 3

      workbench evaluate caption runs/coca corpora/flickr-test --max-new-tokens 20 --limit 100
    """


@dataclass(frozen=True, kw_only=True)
class RetrievalTuning(Tuning):
    """Fine-tune a pretrained run for retrieval between captions and images or videos.

    CORPUS holds images with `captions`, or videos with these, of which each caption is to find the clips of its time.
    The control shuffled-captions trains on those of other images. Batches are larger than other tasks': the negatives
    of the contrast are in them.

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
        typer.Option(help="Dual encoder (itc) or matching (itm); default: what the run was trained with."),
    ] = None
    hard_negatives: Annotated[
        Way | None,
        typer.Option(help="Matching against the hardest of each batch: by a margin (UNITER), as a choice (ViLBERT)."),
    ] = None
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a caption; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class RetrievalScoring(Scoring):
    """Recall at 1, 5 and 10 and median rank of image and text retrieval, next to chance and same features.

    CORPUS holds images or videos with one or more `captions`; RUN has an itc, an itm or the like among its objectives.
    Without --rerank a run is ranked by its itc where it has one, and else by its itm: a forward pass for every pair. Of
    videos with `caption_times` a caption is to find the clips of its time among those of all captions. Next to it
    the first images are ranked as if all had the same features (with --control same-features all of them): what is
    better than chance there is a leak. COCO's 1k protocol is the mean over five parts of its 5,000 test images.

    Examples:

      workbench evaluate retrieval runs/clip corpora/flickr-test

      workbench evaluate retrieval runs/clip corpora/coco-test --captions 5 --folds 5

      workbench evaluate retrieval runs/uniter-retrieval corpora/flickr-test --rerank 20 --first-stage runs/clip
    """

    rerank: Annotated[CountOrZero, typer.Option(help="Re-rank so many candidates of itc by itm; 0: do not.")] = 0
    first_stage: Annotated[
        Path | None, typer.Option(help="With --rerank: the run whose itc finds the candidates; default: RUN.")
    ] = None
    ties: Annotated[Ties, typer.Option(help="Equal scores: realistic (half a place each) or pessimistic.")] = (
        "realistic"
    )
    batch_size: Annotated[Count, typer.Option(help="Images (videos), or pairs of one and a caption, at once.")] = 128
    folds: Annotated[
        Count, typer.Option(help="Number of folds of the images, each ranked by itself; the mean is reported.")
    ] = 1
    captions: Annotated[
        Count | None, typer.Option(help="Only so many captions of each image, the first ones (COCO: 5).")
    ] = None
    limit: Annotated[Count | None, typer.Option(help="Only the first images.")] = None


@dataclass(frozen=True, kw_only=True)
class VqaTuning(Tuning):
    """Fine-tune a pretrained run to answer questions about images.

    CORPUS holds images with `questions`. The control question-only trains without the images.

    Examples:

      workbench finetune vqa runs/uniter corpora/vqa-train --epochs 4 --output runs/uniter-vqa

      workbench finetune vqa runs/uniter corpora/vqa-train --answers-of corpora/vqa-val

      workbench finetune vqa runs/uniter corpora/vqa-train --control question-only -o runs/uniter-vqa-blind
    """

    answers: Annotated[
        Path | None, typer.Option(help="Vocabulary (a JSON list of answers); default: the answers of CORPUS.")
    ] = None
    answers_of: Annotated[
        list[Location] | None,
        typer.Option(metavar="CORPUS", help="Their answers count too (VQA v2: those of train and val). Repeatable."),
    ] = None
    min_count: Annotated[Count, typer.Option(help="How many questions an answer must be the main one of.")] = 9
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a question; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class VqaScoring(Scoring):
    """VQA accuracy by the official rules, or ANLS, per answer type, next to the majority answer.

    CORPUS holds images with `questions` and their answers. Where they have none, as in the splits of test servers,
    there is nothing to score, and a file of predictions is all that is made.

    Examples:

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-val

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-val --control question-only

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-test --predictions results.json

      workbench evaluate vqa runs/uniter-gqa corpora/gqa-test --gqa-predictions results.json

      workbench evaluate vqa runs/uniter-daquar corpora/daquar-test --wordnet /usr/share/wordnet
    """

    variant: Annotated[
        Variant | None,
        typer.Option(
            help="Default: what the corpus names (DocVQA's: anls); else official_2015, or single_answer where most "
            "questions have one answer."
        ),
    ] = None
    predictions: Annotated[
        OutputFile | None,
        typer.Option(
            help="Write the answers to this file too: FILE.json as VQA's test server takes them (question_id, answer), "
            "else lines of JSON (.jsonl)."
        ),
    ] = None
    gqa_predictions: Annotated[
        OutputFile | None,
        typer.Option(help="The same as GQA's test server takes them: JSON, {questionId, prediction}."),
    ] = None
    wordnet: Annotated[
        Path | None,
        typer.Option(help="WordNet's folder (data.noun, index.noun): also accuracy over sets, WUPS at 0.9 and 0.0."),
    ] = None
    batch_size: Annotated[Count, typer.Option(help="Images at once, with all their questions.")] = 32


PHOTO = "a photo of a {}"


@dataclass(frozen=True, kw_only=True)
class ZeroShotScoring(Scoring):
    """Accuracy (the first class, and one of the first five) of a run with a contrast (itc) that has learned no class,
    next to chance and the most frequent class.

    CORPUS holds images with `labels`: by name the name of a class. --labels is a file with a class a line, as CORPUS
    has it; behind a tab may stand the words that it has in prompts. Of several templates the vectors' mean is taken.

    Examples:

      workbench evaluate zero-shot runs/clip corpora/animals --labels animals.txt

      workbench evaluate zero-shot runs/clip corpora/animals --labels animals.txt --template "a photo of a {}" \
--template "a drawing of a {}"
    """

    labels: Annotated[Path, typer.Option(help="The classes, one a line; words for prompts behind a tab.")]
    template: Annotated[
        list[Name] | None, typer.Option(help=f"What a prompt says, {{}} for the class. Repeatable; default: {PHOTO}")
    ] = None
    label: Annotated[Name | None, typer.Option(help="Which label of CORPUS; default: the only one.")] = None

"""What the task vqa is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from vision.answers.metric import Variant
from workbench.evaluation.options import Scoring, Tuning
from workbench.options.bounds import Count, Location
from workbench.runs.outputs import OutputFile


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
    """VQA accuracy by the official rules, or ANLS, per answer type, beside the majority answer.

    CORPUS holds images with `questions` and their answers. Where they have none, as in the parts for test servers,
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

"""`prepare answers`: the answer vocabulary of a classifier, ordered by frequency."""

from __future__ import annotations

import logging
from itertools import chain
from typing import Annotated

import typer

from vision.evaluation.task_options import MinCount
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Place
from workbench.corpora.corpus import Corpus
from workbench.runs.output_places import OutputFile

log = logging.getLogger(__name__)


def answers(
    corpora: Annotated[list[Place], typer.Argument(help="Folders of corpora with questions.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .json.", show_default=False)],
    min_count: MinCount = None,
) -> None:
    """List the most frequent answers of questions, for vision.answers in pretraining (LXMERT) and finetune vqa.

    Examples:

      workbench prepare answers corpora/vqa corpora/gqa --output answers.json

      workbench prepare answers corpora/vqa --min-count 3 --output answers.json
    """
    if output.suffix != ".json":
        raise WorkbenchError(f"--output {output}: the answers are written to a .json file; choose that suffix")
    opened = [Corpus.open(place) for place in corpora]
    from vision.answers.answer_vocabulary import AnswerVocabulary  # imports torch (seconds)
    from vision.evaluation.vqa.answer_predictions import questions_of
    from vision.metrics.vqa_accuracy import RULE, form_of

    forms = {form_of(str(corpus.manifest.about.get(RULE))) for corpus in opened}
    if len(forms) > 1:
        raise WorkbenchError(
            "some of these corpora have answers that are read from images and scored verbatim (ANLS), others have "
            "answers "
            "in VQA's normalised form; write one list for each kind"
        )
    vocabulary = AnswerVocabulary.build(chain.from_iterable(map(questions_of, opened)), min_count, forms.pop())
    vocabulary.save(output)
    log.info("%s: %s answers", output, f"{len(vocabulary):,}")

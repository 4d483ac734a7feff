"""`prepare answers`: the answers of a classifier, in the order of their frequency."""

from __future__ import annotations

import logging
from itertools import chain
from typing import Annotated

import typer

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Location
from workbench.corpora.corpus import Corpus
from workbench.runs.output_places import OutputFile

log = logging.getLogger(__name__)


def answers(
    corpora: Annotated[list[Location], typer.Argument(help="Folders of corpora with questions.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .json.", show_default=False)],
    min_count: Annotated[Count, typer.Option(help="How many questions an answer must be the main one of.")] = 9,
) -> None:
    """List the answers that questions have most often, for vision.answers in pretraining (LXMERT) and finetune vqa.

    Examples:

      workbench prepare answers corpora/vqa corpora/gqa --output answers.json

      workbench prepare answers corpora/vqa --min-count 3 --output answers.json
    """
    if output.suffix != ".json":
        raise WorkbenchError(f"answers are written to a .json file; {output} has another ending")
    opened = [Corpus.open(place) for place in corpora]
    from vision.answers.answer_vocabulary import AnswerVocabulary  # torch takes seconds, a missing corpus needs none
    from vision.answers.metric import RULE, form_of
    from vision.evaluation.vqa.answer_predictions import questions_of

    forms = {form_of(str(corpus.manifest.about.get(RULE))) for corpus in opened}
    if len(forms) > 1:
        raise WorkbenchError(
            "the answers of some of these corpora are read in images and scored as they stand (ANLS), those of others "
            "in VQA's normal form, without punctuation; list them apart"
        )
    vocabulary = AnswerVocabulary.build(chain.from_iterable(map(questions_of, opened)), min_count, forms.pop())
    vocabulary.save(output)
    log.info("%s: %s answers", output, f"{len(vocabulary):,}")

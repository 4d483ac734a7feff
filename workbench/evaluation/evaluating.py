"""One evaluation, whatever the task: the run opened, scored, its result written and shown."""

from __future__ import annotations

from typing import Any

from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Scoring
from workbench.evaluation.result import Result, corpus_input
from workbench.evaluation.task import DownstreamTask
from workbench.files.identities import noted
from workbench.runs.folder import keep_panels
from workbench.runs.names import EVALUATIONS


def evaluate(task: DownstreamTask[Any, Any], scoring: Scoring) -> Result:
    """Score a run on a corpus; writes the result into the run's `evaluations/`.

    Raises:
        WorkbenchError: a wrong input; or the run reads knowledge, and the corpus has none linked.
    """
    corpus = Corpus.open(scoring.corpus)
    with noted() as opened:
        run = task.open(scoring)
        run.check_linked(corpus)
        result = task.score(run, corpus, scoring)
    result.control = scoring.control
    result.panels = list(task.panels)
    read = {kind: {**run.loaded.read.get(kind, {}), **opened.get(kind, {})} for kind in {*run.loaded.read, *opened}}
    result.inputs = {"checkpoint": run.checkpoint, "corpus": corpus_input(corpus), "read": read, **result.inputs}
    result.options = scoring.chosen()
    result.write(scoring.run / EVALUATIONS)
    keep_panels(scoring.run, result.panels)
    task.draw(run, corpus, scoring)
    result.show()
    return result

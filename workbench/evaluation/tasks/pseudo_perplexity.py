"""Pseudo-perplexity of a masked language model, compared with a unigram baseline.

Salazar et al., arXiv:1910.14659, section 2. Of a text w_1 .. w_n:

    PLL(w) = sum over t of log p(w_t | w without w_t),    PPPL = exp(- sum over texts of PLL / number of tokens)

Each token is masked alone, by the mask token, and predicted from all others of its sequence. PLL is no log-probability
of the text, so bits per byte are no length of a code; they compare masked models of different tokenizers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.evaluation.likelihood_options import PseudoPerplexityScoring
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_objective
from workbench.evaluation.scoring.likelihood import PredictedTokens, joined_predictions, token_nats
from workbench.evaluation.scoring.likelihood_task import LikelihoodTask
from workbench.interop.run_or_checkpoint import load
from workbench.objectives.mlm import Mlm
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Rows, Sample, Sequence
from workbench.text.tokenizer import Encoding

WANTED = "evaluate a run, or a checkpoint with its head, that was pretrained with it; for next tokens: perplexity"


class PseudoPerplexity(LikelihoodTask[PseudoPerplexityScoring]):
    """Sums of -log p of tokens that are masked alone."""

    scoring = PseudoPerplexityScoring
    objective = Mlm
    panels = ("workbench.evaluation.task_panels:hidden_token_costs",)

    def open(self, scoring: PseudoPerplexityScoring) -> EvaluatedRun:
        loaded = load(scoring.run, scoring.overrides, control=scoring.control, trust=scoring.trust)
        where = {**scoring.where, "control": scoring.control}
        found = find_objective(loaded, scoring.run, Mlm, WANTED, **where)
        objective, builder = found.objective.objective, found.task.builder
        assert isinstance(objective, Mlm)
        if objective.stream != "text":
            raise WorkbenchError(f"{scoring.run}: mlm masks the stream {objective.stream!r}; texts are read as `text`")
        alone = builder if builder.reads_spans else DocumentBuilder.like(builder)
        return replace(found, task=found.task.with_builder(alone))

    def predictable(self, run: EvaluatedRun, text: Encoding) -> np.ndarray:
        return text.ids

    def convention(self, run: EvaluatedRun, scoring: PseudoPerplexityScoring) -> str:
        return f"per token without special ones; each masked alone in at most {run.task.builder.max_length} tokens"

    def predicted(
        self, run: EvaluatedRun, samples: list[Sample], scoring: PseudoPerplexityScoring
    ) -> list[PredictedTokens]:
        return joined_predictions(_masked_alone(run, run.task.sequences(samples), scoring.batch_size))


def _masked_alone(run: EvaluatedRun, sequences: list[Sequence], size: int) -> Iterator[PredictedTokens]:
    name, mask = run.objective.name, run.tokenizer.id("mask")
    copies = (copy for sequence in sequences for copy in _copies(sequence, name, mask))
    while some := list(islice(copies, size)):
        for copy, nats in zip(some, token_nats(run, some)[0], strict=True):
            yield PredictedTokens(copy.key, np.asarray(copy.targets[name]["labels"]), nats)


def _copies(sequence: Sequence, name: str, mask: int) -> Iterator[Sequence]:
    """The sequence once for each free token, which is masked; all else is shared."""
    text = sequence.fields("text")
    for row in np.flatnonzero(selectable(text)):
        ids = text["input_ids"].copy()
        targets = {name: {"rows": Rows("text", np.array([row])), "labels": ids[[row]]}}
        ids[row] = mask
        yield replace(sequence, streams={**sequence.streams, "text": {**text, "input_ids": ids}}, targets=targets)

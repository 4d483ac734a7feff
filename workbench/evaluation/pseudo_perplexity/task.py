"""Pseudo-perplexity of masked language models (Salazar et al., arXiv:1910.14659, section 2): of a text w_1 .. w_n

    PLL(w) = sum over t of log p(w_t | w without w_t),    PPPL = exp(- sum over texts of PLL / number of tokens)

Each token is masked alone, by the mask token, and predicted from all others of its sequence. PLL is no log-probability
of the text, so bits per byte are no length of a code; they compare masked models of different tokenizers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from workbench.errors import WorkbenchError
from workbench.evaluation.likelihood import Predicted, joined, token_nats
from workbench.evaluation.likelihood_task import LikelihoodTask
from workbench.evaluation.opening import Evaluated, find_objective
from workbench.evaluation.pseudo_perplexity.options import PseudoPerplexityScoring
from workbench.interop.opening import load
from workbench.objectives.mlm import Mlm
from workbench.sequences.builders.document import Document
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Rows, Sample, Sequence
from workbench.text.tokenizer import Encoded

WANTED = "evaluate a run, or a release with its head, that was pretrained with it; for next tokens: perplexity"


class PseudoPerplexity(LikelihoodTask[PseudoPerplexityScoring]):
    """Sums of -log p of tokens that are masked alone."""

    scoring = PseudoPerplexityScoring
    objective = Mlm
    panels = ("workbench.evaluation.pseudo_perplexity.panel:predicted",)

    def open(self, scoring: PseudoPerplexityScoring) -> Evaluated:
        loaded = load(scoring.run, scoring.overrides, control=scoring.control, trust=scoring.trust)
        where = {**scoring.where, "control": scoring.control}
        found = find_objective(loaded, scoring.run, Mlm, WANTED, **where)
        objective, builder = found.objective.objective, found.task.builder
        assert isinstance(objective, Mlm)
        if objective.stream != "text":
            raise WorkbenchError(f"{scoring.run}: mlm masks the stream {objective.stream!r}; texts are read as `text`")
        alone = builder if builder.reads_spans else Document.like(builder)
        return replace(found, task=found.task.with_builder(alone))

    def predictable(self, run: Evaluated, text: Encoded) -> np.ndarray:
        return text.ids

    def convention(self, run: Evaluated, scoring: PseudoPerplexityScoring) -> str:
        return f"per token without special ones; each masked alone in at most {run.task.builder.max_length} tokens"

    def predicted(self, run: Evaluated, samples: list[Sample], scoring: PseudoPerplexityScoring) -> list[Predicted]:
        return joined(_masked_alone(run, run.task.sequences(samples), scoring.batch_size))


def _masked_alone(run: Evaluated, sequences: list[Sequence], size: int) -> Iterator[Predicted]:
    name, mask = run.objective.name, run.tokenizer.id("mask")
    copies = (copy for sequence in sequences for copy in _copies(sequence, name, mask))
    while some := list(islice(copies, size)):
        for copy, nats in zip(some, token_nats(run, some)[0], strict=True):
            yield Predicted(copy.key, np.asarray(copy.targets[name]["labels"]), nats)


def _copies(sequence: Sequence, name: str, mask: int) -> Iterator[Sequence]:
    """The sequence once for each free token, which is masked; all else is shared."""
    text = sequence.fields("text")
    for row in np.flatnonzero(selectable(text)):
        ids = text["input_ids"].copy()
        targets = {name: {"rows": Rows("text", np.array([row])), "labels": ids[[row]]}}
        ids[row] = mask
        yield replace(sequence, streams={**sequence.streams, "text": {**text, "input_ids": ids}}, targets=targets)

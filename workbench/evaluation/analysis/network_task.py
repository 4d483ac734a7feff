"""Analyses: downstream tasks that open any network, of a run or of a checkpoint, without a head of ours.

They read states of stretches of texts (words, tagged spans): the mean over the tokens that a stretch touches. So their
items are the same for networks with other tokenizers, and `workbench compare` pairs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Scoring, Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_network, texts_alone
from workbench.evaluation.scoring.passes import forward_pass, sample_pass
from workbench.metrics.tallies import Tally
from workbench.pretraining.objective import Objective
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.sequence import Fields, Sample
from workbench.text.sentences import SPACELESS

STREAM = "text"
_WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")
AnalysisScoring = TypeVar("AnalysisScoring", bound=Scoring)


class NetworkTask(DownstreamTask[Tuning, AnalysisScoring]):
    """Base of the tasks that analyse a network alone."""

    objective = Objective
    scored = False
    panels = ("workbench.evaluation.analysis_panels:analysed",)

    def chosen(self, loaded: LoadedRun, options: Any) -> EvaluatedRun:
        if options.objective is not None:
            raise WorkbenchError(f"--objective: {self.name} reads a network without a head; leave the option out")
        where = {"task": options.task, "network": options.network, "control": options.control}
        found = find_network(loaded, options.run, **where)
        if STREAM not in found.network.sizes:
            streams = ", ".join(found.network.sizes)
            raise WorkbenchError(f"{options.run} reads {streams}, and {self.name} needs texts; take a run that does")
        return texts_alone(found)


class StretchedText(NamedTuple):
    """A text and the stretches [n, 2] of it that are looked at, half-open, in characters."""

    sample: Sample
    places: np.ndarray

    @property
    def key(self) -> str:
        return str(self.sample["key"])

    def word(self, number: int) -> str:
        """The characters of a stretch."""
        start, end = self.places[number].tolist()
        return str(self.sample["text"][start:end])


def texts_of(corpus: Corpus, limit: int | None) -> list[Sample]:
    """The first records of a corpus of texts.

    Raises:
        WorkbenchError: it holds something else.
    """
    if corpus.kind != "text":
        raise WorkbenchError(f"corpus {corpus.name!r} holds {corpus.kind}; this analysis reads texts")
    groups = sample_pass([corpus], size=64, unit=None, records=limit)
    return [sample for group in groups for sample in group if sample.get("text")]


def in_words(samples: Iterable[Sample]) -> list[StretchedText]:
    """Texts with the places of their words: runs of letters, digits and marks, or single characters of scripts without
    spaces."""
    places = ([found.span() for found in _WORD.finditer(sample["text"])] for sample in samples)
    return [StretchedText(s, np.array(p, np.int64).reshape(-1, 2)) for s, p in zip(samples, places, strict=True)]


def states_of(run: EvaluatedRun, texts: Sequence[StretchedText], size: int) -> tuple[Tensor, np.ndarray]:
    """The states of all stretches, text after text, before the first layer and after each.

    Args:
        size: texts at once.

    Returns:
        states: [layers + 1, stretches, hidden_size], float32, on the CPU; zeros for a stretch without a token.
        found: [stretches], whether each has a token.
    """
    groups = ([text.sample for text in texts[begin : begin + size]] for begin in range(0, len(texts), size))
    firsts = np.cumsum([0, *(len(text.places) for text in texts)])
    states: Tensor | None = None
    counts = torch.zeros(int(firsts[-1]))
    by_key = {text.key: number for number, text in enumerate(texts)}
    for forward in forward_pass(run.network, run.task.sequences, groups, keep_hidden=True):
        hidden = torch.stack([each[STREAM].float() for each in forward.read.hidden]).cpu()
        if states is None:
            states = torch.zeros(len(hidden), int(firsts[-1]), hidden.shape[-1])
        lengths = forward.batch.streams[STREAM].lengths
        for sequence, rows in zip(forward.sequences, hidden.split(lengths, 1), strict=True):
            number = by_key[str(sequence.key)]
            touched = torch.from_numpy(_touched(sequence.fields(STREAM), texts[number].places)).float()
            of = slice(int(firsts[number]), int(firsts[number + 1]))
            states[:, of] += touched @ rows
            counts[of] += touched.sum(1)
    if states is None:
        raise WorkbenchError(f"{run.folder}: the texts have no sequences; take a corpus with texts that are not empty")
    return states / counts.clamp_min(1)[:, None], (counts > 0).numpy()


def _touched(fields: Fields, places: np.ndarray) -> np.ndarray:
    """Whether each stretch has characters of each row [stretches, rows]."""
    starts, ends = fields["char_start"], fields["char_end"]
    inside = (starts < places[:, 1:]) & (ends > places[:, :1])
    return np.asarray(inside & (starts >= 0) & ~fields["special"])


def by_layer(name: str, values: np.ndarray, weights: Any = None, *, share: bool = False) -> dict[str, Tally]:
    """A tally `name/layer_N` of each layer, from values [layers, items]; layer 0 is the embedding."""
    kind = Tally.share if share else Tally.mean
    return {f"{name}/layer_{layer}": kind(row, weights) for layer, row in enumerate(values)}


def wholes(tallies: dict[str, Tally]) -> dict[str, float]:
    """The numbers of a result by its tallies."""
    return {name: tally.whole for name, tally in tallies.items()}

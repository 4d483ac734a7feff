"""Perplexity of models that predict tokens one after another (GPT, Transformer-XL; T5 and BART of their targets)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.corpora.corpus import Corpus
from workbench.evaluation.likelihood import Predicted, joined, token_nats
from workbench.evaluation.likelihood_task import LikelihoodTask
from workbench.evaluation.measured import items
from workbench.evaluation.opening import Evaluated, find_fitting
from workbench.evaluation.perplexity.options import PerplexityScoring
from workbench.evaluation.perplexity.windows import check_stride, room, windows_of
from workbench.interop.opening import load
from workbench.keyed import Draws
from workbench.models.past import Past
from workbench.objectives.clm import Clm
from workbench.objectives.mlm import Mlm
from workbench.parts.calls import call
from workbench.sequences.builder import sample_text
from workbench.sequences.builders.document import Document
from workbench.sequences.sequence import Sample, Sequence
from workbench.tasks.returns import CONTINUATION
from workbench.tasks.task import Task, TaskObjective
from workbench.text.tokenizer import Encoded

WANTED = "evaluate a run that predicts next tokens (clm, span_corruption, ...), or pseudo-perplexity"


class Perplexity(LikelihoodTask[PerplexityScoring]):
    """Sums of -log p of next tokens."""

    scoring = PerplexityScoring
    objective = Clm
    panels = ("workbench.evaluation.perplexity.panel:predicted",)

    def open(self, scoring: PerplexityScoring) -> Evaluated:
        loaded = load(scoring.run, scoring.overrides, control=scoring.control, trust=scoring.trust)
        what = "an objective that predicts tokens one after another"
        return find_fitting(loaded, scoring.run, _goes_on, what, WANTED, **scoring.where, control=scoring.control)

    def sized(self, run: Evaluated) -> bool:
        """A text by itself is read whole, in windows; all else as the run's own task reads it."""
        objective, builder = run.objective.objective, run.task.builder
        alone = isinstance(builder, Document) and builder.frame.visibility == "causal" and not run.task.steps
        return alone and isinstance(objective, Clm) and objective.stream == "text"

    def predictable(self, run: Evaluated, text: Encoded) -> np.ndarray:
        return np.concatenate([text.ids, run.task.builder.frame.end])

    def unpredicted(self, run: Evaluated, sample: Sample) -> int:
        """The first token, where nothing stands before it to predict it from."""
        ends = run.tokenizer.encode(sample_text(sample)).ends
        return int(ends[0]) if len(ends) and not run.task.builder.frame.begin else 0

    def convention(self, run: Evaluated, scoring: PerplexityScoring) -> str:
        if not self.sized(run):
            return f"per token that {run.objective.name} predicts, given the rest"
        builder, memory = run.task.builder, run.network.memory
        stride, most = check_stride(scoring.stride, builder), room(builder)
        before = f"a memory of {memory} rows" if memory else f"at least {most - stride + 1} of them before a token"
        end = ", ends of texts too" if builder.frame.end else ""
        return f"per token{end}; windows of {most} tokens, {before} but at a text's beginning"

    def groups(self, run: Evaluated, corpus: Corpus, scoring: PerplexityScoring) -> Iterator[list[Sample]]:
        if self.sized(run):
            return super().groups(run, corpus, scoring)
        return items(run, corpus, scoring.batch_size, scoring.limit)

    def predicted(self, run: Evaluated, samples: list[Sample], scoring: PerplexityScoring) -> list[Predicted]:
        if not self.sized(run):
            return joined(_of_targets(run, samples))
        builder = run.task.builder
        stride, name = check_stride(scoring.stride, builder), run.objective.name
        texts = run.tokenizer.encode_batch([sample_text(sample) for sample in samples])
        windows = [
            list(windows_of(sample["key"], text, builder, stride, name))
            for sample, text in zip(samples, texts, strict=True)
        ]
        found = _read_on(run, windows) if run.network.memory else _one_by_one(run, windows, scoring.batch_size)
        return joined(found)


def _goes_on(task: Task, placed: TaskObjective) -> bool:
    objective = placed.objective
    if isinstance(objective, Mlm) or objective.predicts != "tokens":
        return False  # mlm may go on with a text as well, but learns to fill gaps
    return call(objective, "continuation", CONTINUATION, task.builder) is not None


def _one_by_one(run: Evaluated, windows: list[list[Sequence]], size: int) -> Iterator[Predicted]:
    """Windows that stand for themselves, so many at once."""
    flat = [window for text in windows for window in text]
    for begin in range(0, len(flat), size):
        some = flat[begin : begin + size]
        yield from _told(run, some, token_nats(run, some)[0])


def _read_on(run: Evaluated, windows: list[list[Sequence]]) -> Iterator[Predicted]:
    """All texts side by side, each window with the memory of those before it; a text that has ended drops out."""
    past, reading = Past("rows"), list(range(len(windows)))
    for number in range(max(map(len, windows), default=0)):
        still = [place for place, text in enumerate(reading) if len(windows[text]) > number]
        if number:
            past = past.pick(still).behind()
        reading = [reading[place] for place in still]
        some = [windows[text][number] for text in reading]
        nats, after = token_nats(run, some, past)
        assert after is not None
        past = after.cut(run.network.memory)
        yield from _told(run, some, nats)


def _of_targets(run: Evaluated, samples: list[Sample]) -> Iterator[Predicted]:
    """What the objective makes of the samples' sequences, with the same draws in every evaluation."""
    objective, name = run.objective.objective, run.objective.name
    sequences = run.task.sequences(samples)
    objective.corrupt(sequences, Draws(run.task.seed, run.task.name, name, "evaluate", number=()))
    if sequences:
        yield from _told(run, sequences, token_nats(run, sequences)[0])


def _told(run: Evaluated, sequences: list[Sequence], nats: list[np.ndarray]) -> Iterator[Predicted]:
    for sequence, found in zip(sequences, nats, strict=True):
        yield Predicted(sequence.key, np.asarray(sequence.targets[run.objective.name]["labels"]), found)

"""Perplexity and bits per byte of a causal language model, compared with a unigram baseline.

The models predict the next token (GPT, Transformer-XL), or the tokens of a target (T5, BART). A text is read in
windows. Each window predicts the tokens that no window before it has predicted.

The rows of a text are its tokens and the special tokens that the run's builder adds. A window predicts the row after
each of its rows. Only rows that no window before has predicted count. So every row is predicted once, except for the
first row, which is given. If a text begins with a special token, a window within the text begins with it too, like the
run's own sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from workbench.components.calls import call
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.corpora.corpus import Corpus
from workbench.evaluation.likelihood_options import PerplexityScoring
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_fitting_objective
from workbench.evaluation.scoring.likelihood import PredictedTokens, Reread, joined_predictions, token_nats
from workbench.evaluation.scoring.likelihood_task import LikelihoodTask
from workbench.evaluation.scoring.objective_task import items
from workbench.evaluation.scoring.result import Result, corpus_input
from workbench.evaluation.scoring.token_memory import MemoryWriter, TokenMemory
from workbench.interop.run_or_checkpoint import load
from workbench.models.kv_cache import KVCache
from workbench.objectives.clm import Clm
from workbench.objectives.mlm import Mlm
from workbench.pretraining.objective import CONTINUATION
from workbench.pretraining.task import Task, TaskObjective
from workbench.sequences.builder import sample_text
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.sequence import Rows, Sample, Sequence
from workbench.text.tokenizer import Encoding

WANTED = "evaluate a run that predicts next tokens (clm, span_corruption, ...), or pseudo-perplexity"


class Perplexity(LikelihoodTask[PerplexityScoring]):
    """Sums of -log p of next tokens."""

    scoring = PerplexityScoring
    objective = Clm
    panels = ("workbench.evaluation.task_panels:token_costs",)
    memory: Reread | None = None

    def open(self, scoring: PerplexityScoring) -> EvaluatedRun:
        loaded = load(scoring.run, scoring.overrides, control=scoring.control, trust=scoring.trust)
        what = "an objective that predicts tokens one after another"
        return find_fitting_objective(
            loaded, scoring.run, _continues, what, WANTED, **scoring.where, control=scoring.control
        )

    def sized(self, run: EvaluatedRun) -> bool:
        """A text by itself is read whole, in windows; all else as the run's own task reads it."""
        objective, builder = run.objective.objective, run.task.builder
        alone = (
            isinstance(builder, DocumentBuilder) and builder.frame.visibility == "causal" and not run.task.transforms
        )
        return alone and isinstance(objective, Clm) and objective.stream == "text"

    def predictable(self, run: EvaluatedRun, text: Encoding) -> np.ndarray:
        return np.concatenate([text.ids, run.task.builder.frame.end])

    def unpredicted(self, run: EvaluatedRun, sample: Sample) -> int:
        """The first token, where nothing stands before it to predict it from."""
        ends = run.tokenizer.encode(sample_text(sample)).ends
        return int(ends[0]) if len(ends) and not run.task.builder.frame.begin else 0

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: PerplexityScoring) -> Result:
        self.memory = None
        if scoring.memory is None:
            return super().score(run, corpus, scoring)
        remembered = Corpus.open(scoring.memory)
        if not self.sized(run):
            raise WorkbenchError("--memory: this run doesn't read a text by itself from left to right; leave it out")
        if remembered.identity == corpus.identity:
            raise WorkbenchError("--memory is the corpus that is measured, so it holds every answer; pass another one")
        self.memory = MemoryWriter()
        for samples in super().groups(run, remembered, replace(scoring, limit=None)):
            self.predicted(run, samples, scoring)
        self.memory = TokenMemory(self.memory, scoring.neighbours, scoring.memory_share, scoring.memory_temperature)
        result = super().score(run, corpus, scoring)
        result.inputs["memory"] = corpus_input(remembered)
        result.counts["tokens of the memory"] = len(self.memory.tokens)
        return result

    def convention(self, run: EvaluatedRun, scoring: PerplexityScoring) -> str:
        if not self.sized(run):
            return f"per token that {run.objective.name} predicts, given the rest"
        builder, memory = run.task.builder, run.network.memory
        stride, most = check_stride(scoring.stride, builder), room(builder)
        before = f"a memory of {memory} rows" if memory else f"at least {most - stride + 1} of them before a token"
        end = ", ends of texts too" if builder.frame.end else ""
        mixed = f"; with {scoring.memory_share:g} of a memory" if scoring.memory else ""
        return f"per token{end}; windows of {most} tokens, {before} but at a text's beginning{mixed}"

    def groups(self, run: EvaluatedRun, corpus: Corpus, scoring: PerplexityScoring) -> Iterator[list[Sample]]:
        if self.sized(run):
            return super().groups(run, corpus, scoring)
        return items(run, corpus, scoring.batch_size, scoring.limit)

    def predicted(self, run: EvaluatedRun, samples: list[Sample], scoring: PerplexityScoring) -> list[PredictedTokens]:
        if not self.sized(run):
            return joined_predictions(_of_targets(run, samples))
        builder = run.task.builder
        stride, name = check_stride(scoring.stride, builder), run.objective.name
        texts = run.tokenizer.encode_batch([sample_text(sample) for sample in samples])
        windows = [
            list(windows_of(sample["key"], text, builder, stride, name))
            for sample, text in zip(samples, texts, strict=True)
        ]
        memory = self.memory
        found = (
            _read_on(run, windows, memory)
            if run.network.memory
            else _one_by_one(run, windows, scoring.batch_size, memory)
        )
        return joined_predictions(found)


def _continues(task: Task, placed: TaskObjective) -> bool:
    objective = placed.objective
    if isinstance(objective, Mlm) or objective.predicts != "tokens":
        return False  # mlm may generate text as well, but learns to fill gaps
    return call(objective, "continuation", CONTINUATION, task.builder) is not None


def _one_by_one(
    run: EvaluatedRun, windows: list[list[Sequence]], size: int, memory: Reread | None
) -> Iterator[PredictedTokens]:
    """Windows that stand for themselves, so many at once."""
    flat = [window for text in windows for window in text]
    for begin in range(0, len(flat), size):
        some = flat[begin : begin + size]
        yield from _in_words(run, some, token_nats(run, some, reread=memory)[0])


def _read_on(run: EvaluatedRun, windows: list[list[Sequence]], memory: Reread | None) -> Iterator[PredictedTokens]:
    """All texts side by side, each window with the memory of those before it; a text that has ended drops out."""
    cache, reading = KVCache("rows"), list(range(len(windows)))
    for number in range(max(map(len, windows), default=0)):
        still = [place for place, text in enumerate(reading) if len(windows[text]) > number]
        if number:
            cache = cache.pick(still).behind()
        reading = [reading[place] for place in still]
        some = [windows[text][number] for text in reading]
        nats, after = token_nats(run, some, cache, memory)
        assert after is not None
        cache = after.cut(run.network.memory)
        yield from _in_words(run, some, nats)


def _of_targets(run: EvaluatedRun, samples: list[Sample]) -> Iterator[PredictedTokens]:
    """The objective's targets of the samples' sequences, with the same draws in every evaluation."""
    objective, name = run.objective.objective, run.objective.name
    sequences = run.task.sequences(samples)
    objective.corrupt(sequences, Draws(run.task.seed, run.task.name, name, "evaluate", number=()))
    if sequences:
        yield from _in_words(run, sequences, token_nats(run, sequences)[0])


def _in_words(run: EvaluatedRun, sequences: list[Sequence], nats: list[np.ndarray]) -> Iterator[PredictedTokens]:
    for sequence, found in zip(sequences, nats, strict=True):
        yield PredictedTokens(sequence.key, np.asarray(sequence.targets[run.objective.name]["labels"]), found)


def room(builder: DocumentBuilder) -> int:
    """Rows of the text in a window within it."""
    return builder.max_length - len(builder.frame.begin)


def check_stride(stride: int | None, builder: DocumentBuilder) -> int:
    """How many rows a window predicts anew; by default as many as it has, but for the special token.

    Raises:
        WorkbenchError: more than that.
    """
    if stride is not None and stride > room(builder):
        raise WorkbenchError(
            f"--stride {stride}: a window has {room(builder)} rows of the text (the builder's max_length is "
            f"{builder.max_length}); pass at most this number, or leave it out"
        )
    return stride or room(builder)


def windows_of(key: str, text: Encoding, builder: DocumentBuilder, stride: int, objective: str) -> Iterator[Sequence]:
    """The windows of a text as sequences, with `rows` and `labels` of what each predicts as the objective's targets."""
    whole, _ = builder.frame.lay([text])
    ids = whole["input_ids"]
    before, done, number = len(builder.frame.begin), 1, 0
    while done < len(ids):
        if number == 0:
            rows = np.arange(min(builder.max_length, len(ids) - 1))
        else:
            end = min(done + stride, len(ids)) - 1  # the last row that is to be read
            rows = np.concatenate([np.arange(before), np.arange(max(before, end - room(builder)), end)])
        read = np.flatnonzero(rows + 1 >= done)
        stream = {name: values[rows] for name, values in whole.items()}
        places = np.arange(len(rows), dtype=np.int64)
        stream |= {"position_ids": places, "rank": places.copy()}
        targets = {objective: {"rows": Rows("text", read), "labels": ids[rows[read] + 1]}}
        yield Sequence({"text": stream}, (number,), key, targets=targets)
        done, number = int(rows[-1]) + 2, number + 1

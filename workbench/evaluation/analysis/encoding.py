"""Vectors of texts or images from a trained run: `workbench encode`, and `Model.encode`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError, unknown
from workbench.evaluation.scoring.evaluated_run import checkpoint_of
from workbench.evaluation.scoring.inputs import input_corpus, text_lines, text_samples
from workbench.evaluation.scoring.passes import PassOutput, forward_pass, sample_pass
from workbench.interop.run_or_checkpoint import load
from workbench.models.embeddings.token import TokenEmbedding
from workbench.models.network import Network
from workbench.models.pooler import mean_rows
from workbench.pretraining.task import Task
from workbench.runs.loaded_run import LoadedRun
from workbench.runs.weights import save_tensors
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.sequence import Sample, Sequence

POOLS = ("mean", "summary", "pooled")


class TokenStates(NamedTuple):
    """The tokens of a text, special ones included, in the order in which the network reads them.

    Attributes:
        tokens: as the tokenizer writes them.
        spans: which characters of the text each stands for [tokens, 2], half-open; -1, -1 for a token of no character.
        vectors: the last layer's states [tokens, hidden_size], float32.
    """

    tokens: list[str]
    spans: np.ndarray
    vectors: np.ndarray

    def __repr__(self) -> str:
        return f"<TokenStates: {len(self.tokens)} tokens, vectors of size {self.vectors.shape[1]}>"


@dataclass(frozen=True, repr=False)
class AttentionMap:
    """The weights of one attention call for one input.

    Attributes:
        layer: its number in the network's stack, from 0.
        queries, keys: what the rows and columns stand for: tokens, and `image 0` and so on for the rows of an image.
        weights: [heads, queries, keys]; the weights of a query add up to 1.
    """

    layer: int
    queries: list[str]
    keys: list[str]
    weights: np.ndarray

    def __repr__(self) -> str:
        return (
            f"<AttentionMap of layer {self.layer}: heads x queries x keys = {' x '.join(map(str, self.weights.shape))}>"
        )


@dataclass
class Encoder:
    """Turns samples into vectors.

    Args:
        loaded: the run.
        stream: whose rows are pooled.
        pool: `mean` of the rows, the `summary` row that stands for all (the first, [CLS]; the last of a text that is
            read from left to right), the `pooled` output, or the name of an objective whose head returns vectors (itc:
            the space in which texts and images meet). By default that of such an objective, or else `mean`.
        network_name: the network that encodes; without a name the only one.

    Raises:
        WorkbenchError: the run has no such stream, pooling, objective or network, or several objectives with vectors.
    """

    loaded: LoadedRun
    stream: str = "text"
    pool: str | None = None
    network_name: str | None = None

    def __post_init__(self) -> None:
        name = self.loaded.model.network_name(self.network_name)
        self.network: Network = self.loaded.model.network(name)
        heads = {name: head for name, head in self.loaded.model.heads_of(name).items() if hasattr(head, "vectors")}
        if self.stream not in self.network.sizes:
            raise unknown("stream", self.stream, self.network.sizes)
        if self.pool is None:
            fitting = [name for name, head in heads.items() if self.stream in getattr(head, "streams", {}).values()]
            if len(fitting) > 1:
                raise WorkbenchError(
                    f"the objectives {', '.join(fitting)} each have vectors of {self.stream!r}; name one as the "
                    f"pooling, or one of {', '.join(POOLS)}"
                )
            self.pool = fitting[0] if fitting else "mean"
        if self.pool not in (*POOLS, *heads):
            raise unknown("pooling", self.pool, [*POOLS, *heads])
        tasks = list(self.loaded.tasks.values())
        read = self.loaded.model.followed(name)
        reading = [task for task in tasks if any(placed.network == read for placed in task.objectives)]
        pooling = [task for task in reading if any(placed.name == self.pool for placed in task.objectives)]
        self.task: Task = next(iter([*pooling, *reading, *tasks])).evaluating()

    @torch.inference_mode()
    def __call__(
        self,
        samples: Iterator[list[Sample]],
        *,
        built: bool,
        alone: bool = True,
        first: int = 0,
        may_be_empty: bool = False,
    ) -> tuple[list[str], Tensor]:
        """Keys and vectors [samples, size], in order. A text of several sequences gets the mean of their vectors.

        Args:
            built: make sequences with the task's own builder (images with captions), or each text by itself.
            alone: read the stream without the others of the sample (a caption without its image).
            first: the number of the first group of samples.
            may_be_empty: samples without a sequence give no vectors, instead of an error.

        Raises:
            WorkbenchError: no sample gave a sequence.
        """

        def read(group: list[Sample], number: tuple[int, ...]) -> list[Sequence]:
            sequences = self.sequences(group, number, built=built)
            return [sequence.alone(self.stream) for sequence in sequences] if alone else sequences

        keys: list[str] = []
        sums: list[Tensor] = []
        counts: list[int] = []
        for forward in forward_pass(self.network, read, samples, first):
            vectors = self._vectors(forward).float().cpu()
            for sequence, vector in zip(forward.sequences, vectors, strict=True):
                if keys and keys[-1] == sequence.key:
                    sums[-1], counts[-1] = sums[-1] + vector, counts[-1] + 1
                else:
                    keys.append(sequence.key)
                    sums.append(vector)
                    counts.append(1)
        if not keys and may_be_empty:
            return [], torch.empty(0, 0)
        if not keys:
            raise WorkbenchError("nothing to encode: the input gave no sequences")
        return keys, torch.stack([total / count for total, count in zip(sums, counts, strict=True)])

    def states(self, samples: Iterator[list[Sample]]) -> Iterator[TokenStates]:
        """The tokens of each text with their vectors. A text of several sequences gets the rows of all of them."""
        parts = (part for forward in forward_pass(self.network, self._texts, samples) for part in self._rows(forward))
        for _, same in groupby(parts, key=lambda part: part[0]):
            tokens, spans, vectors = zip(*(part[1] for part in same), strict=True)
            yield TokenStates([*chain(*tokens)], np.concatenate(spans), np.concatenate(vectors))

    def _rows(self, forward: PassOutput) -> Iterator[tuple[str, TokenStates]]:
        """The key of each sequence, and its tokens."""
        assert self.loaded.tokenizer is not None
        states = forward.states[self.stream].float().cpu().split(forward.batch.streams[self.stream].lengths)
        for sequence, rows in zip(forward.sequences, states, strict=True):
            fields = sequence.fields(self.stream)
            spans = np.stack([fields["char_start"], fields["char_end"]], 1)
            yield sequence.key, TokenStates(self.loaded.tokenizer.tokens(fields["input_ids"]), spans, rows.numpy())

    def sequences(self, samples: list[Sample], number: tuple[int, ...] = (), *, built: bool) -> list[Sequence]:
        """The sequences of samples, made by the task's own builder, or each text by itself."""
        return self.task.sequences(samples, number) if built else self._texts(samples, number)

    def _texts(self, samples: list[Sample], number: tuple[int, ...]) -> list[Sequence]:
        if self.loaded.tokenizer is None:
            raise WorkbenchError("this run has no tokenizer, so it cannot read text")
        if self.task.builder.reads_spans:
            return self.task.sequences(samples, number)
        made = self.task.with_builder(DocumentBuilder.like(self.task.builder)).sequences(samples, number)
        return [_renamed(sequence, self.stream) for sequence in made] if self._of_second_encoder else made

    @property
    def _of_second_encoder(self) -> bool:
        """Whether an objective compares texts in the stream `text` with texts in this one (DPR)."""
        head = dict(self.loaded.model.heads.items()).get(str(self.pool))
        compared = self.stream in getattr(head, "streams", {}).values()
        return compared and self.stream != "text" and isinstance(self.network.embeddings[self.stream], TokenEmbedding)

    def _vectors(self, forward: PassOutput) -> Tensor:
        """[sequences, size]."""
        states, batch = forward.states, forward.batch
        if self.stream not in states:
            raise WorkbenchError(f"the input has no {self.stream!r} stream; encode a corpus that has it")
        if self.pool == "pooled":
            return self.network.pool(states, batch, self.stream)
        if self.pool == "summary":
            return self.network.summary_rows(states, batch, self.stream)
        if self.pool == "mean":
            return mean_rows(states[self.stream], batch.streams[self.stream])
        head: Any = self.loaded.model.heads[str(self.pool)]
        return head.vectors(forward.read, self.stream)


@dataclass(frozen=True)
class EncodeTask:
    """The command `workbench encode` (`workbench.cli.encoding`): its options, which a worker receives once."""

    run: Path
    source: Path
    stream: str = "text"
    pool: str | None = None
    network: str | None = None
    batch_size: int = 64
    limit: int | None = None
    trust: bool = False

    def write(self, output: Path, engine: Any) -> tuple[int, int]:
        """Write the vectors; returns their number and size.

        Args:
            engine: what runs the units, such as `pipelines.preparing.engines.local.LocalEngine`; a unit is `UNIT`
                batches, so that vectors do not depend on the number of workers.

        Raises:
            WorkbenchError: a wrong input, or as `Encoder`.
        """
        _encoder.cache_clear()
        _text_lines.cache_clear()
        total = items_of(self.source, self.limit)
        per_unit = UNIT * self.batch_size
        with engine.opened([output.parent]):
            found = list(engine.each(encoded_unit, self, range(0, max(total, 1), per_unit), "auto"))
        keys = [key for part, *_ in found for key in part]
        if not keys:
            raise WorkbenchError("nothing to encode: the input gave no sequences")
        vectors = torch.cat([torch.from_numpy(part) for _, part, _ in found if len(part)])
        made = {"keys": json.dumps(keys, ensure_ascii=False), "checkpoint": checkpoint_of(self.run)}
        made |= {"input": str(self.source), "stream": self.stream, "pool": found[0][2]}
        save_tensors(output, {"vectors": vectors.contiguous()}, made)
        return len(keys), vectors.shape[1]

    def samples(self, first: int, count: int) -> tuple[Iterator[list[Sample]], bool]:
        """Groups of samples from one on, and whether the task's own builder makes their sequences."""
        corpus = input_corpus(self.source)
        if corpus is None:
            return text_samples(_text_lines(self.source)[: self.limit][first : first + count], self.batch_size), False
        left = count if self.limit is None else min(count, self.limit - first)
        groups = sample_pass([corpus], size=self.batch_size, unit=None, first=first, limit=left)
        return (_with_one_caption(g) for g in groups) if corpus.kind == "image-text" else groups, corpus.kind != "text"


UNIT = 16
"""Batches in a unit of work of `workbench encode`."""


@lru_cache(maxsize=1)
def _text_lines(source: Path) -> list[tuple[int, str]]:
    """The lines of a text, read once in each process."""
    return text_lines(source)


def items_of(source: Path, limit: int | None) -> int:
    """The number of samples to encode.

    Raises:
        WorkbenchError: neither a corpus of texts or images nor a text file in UTF-8.
    """
    corpus = input_corpus(source)
    total = corpus.records if corpus is not None else len(_text_lines(source))
    return total if limit is None else min(total, limit)


@lru_cache(maxsize=1)
def _encoder(encoding: EncodeTask) -> Encoder:
    """The model, loaded once in each process."""
    loaded = load(encoding.run, trust=encoding.trust)
    loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return Encoder(loaded, encoding.stream, encoding.pool, encoding.network)


def encoded_unit(encoding: EncodeTask, first: int) -> tuple[list[str], np.ndarray, str]:
    """Keys and vectors [samples, size] of the samples of a unit, which begins with the sample numbered `first`, and
    their pooling."""
    encoder = _encoder(encoding)
    samples, built = encoding.samples(first, UNIT * encoding.batch_size)
    keys, vectors = encoder(samples, built=built, first=first // encoding.batch_size, may_be_empty=True)
    return keys, vectors.numpy(), str(encoder.pool)


def _renamed(sequence: Sequence, stream: str) -> Sequence:
    """The sequence with its text as another stream."""
    return replace(sequence, streams={stream: sequence.streams["text"]}, spans=[], marks=[], mask_spans=[])


def _with_one_caption(samples: list[Sample]) -> list[Sample]:
    kept = ("captions", "caption_spans")
    return [{**s, **{name: s[name][:1] for name in kept if name in s}} for s in samples]

"""Vectors of texts or images from a trained run: `workbench encode`, and `encode_texts` in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape
from safetensors.torch import save
from torch import Tensor

from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME
from workbench.errors import WorkbenchError, unknown
from workbench.evaluation.inputs import text_lines, text_samples
from workbench.evaluation.opening import checkpoint_of
from workbench.evaluation.passes import Forward, forward_pass, sample_pass
from workbench.files.drafts import atomic
from workbench.interop.opening import load
from workbench.models.network import Network
from workbench.options.bounds import Count, Word
from workbench.options.command import Trust, WhichNetwork
from workbench.runs.loading import Loaded
from workbench.runs.outputs import OutputFile
from workbench.sequences.builders.document import Document
from workbench.sequences.sequence import Sample, Sequence
from workbench.tasks.task import Task
from workbench.terminal import Terminal

POOLS = ("mean", "summary", "pooled")


@dataclass
class Encoder:
    """Turns samples into vectors.

    Args:
        loaded: the run.
        stream: whose rows are pooled.
        pool: `mean` of the rows, the `summary` row that stands for all (the first, [CLS]; the last of a text that is
            read from left to right), the `pooled` output, or the name of an objective whose head gives vectors (itc:
            the space in which texts and images meet).
        network_name: the network that encodes; without a name the only one.

    Raises:
        WorkbenchError: the run has no such stream, pooling, objective or network.
    """

    loaded: Loaded
    stream: str = "text"
    pool: str = "mean"
    network_name: str | None = None

    def __post_init__(self) -> None:
        name = self.loaded.model.network_name(self.network_name)
        self.network: Network = self.loaded.model.network(name)
        heads = [name for name, head in self.loaded.model.heads_of(name).items() if hasattr(head, "vectors")]
        if self.stream not in self.network.sizes:
            raise unknown("stream", self.stream, self.network.sizes)
        if self.pool not in (*POOLS, *heads):
            raise unknown("pooling", self.pool, [*POOLS, *heads])
        tasks = list(self.loaded.transforms.values())
        read = self.loaded.model.followed(name)
        reading = [task for task in tasks if any(placed.network == read for placed in task.objectives)]
        pooling = [task for task in reading if any(placed.name == self.pool for placed in task.objectives)]
        self.task: Task = next(iter([*pooling, *reading, *tasks])).evaluating()

    def __call__(self, samples: Iterator[list[Sample]], *, built: bool) -> tuple[list[str], Tensor]:
        """Keys and vectors [samples, size], in order. A text of several sequences gets the mean of their vectors.

        Args:
            built: make sequences with the task's own builder (images with captions), or each text by itself.
        """
        make = self.task.sequences if built else self._texts

        def alone(group: list[Sample], number: tuple[int, ...]) -> list[Sequence]:
            return [sequence.alone(self.stream) for sequence in make(group, number)]

        keys: list[str] = []
        sums: list[Tensor] = []
        counts: list[int] = []
        for forward in forward_pass(self.network, alone, samples):
            vectors = self._vectors(forward).float().cpu()
            for sequence, vector in zip(forward.sequences, vectors, strict=True):
                if keys and keys[-1] == sequence.key:
                    sums[-1], counts[-1] = sums[-1] + vector, counts[-1] + 1
                else:
                    keys.append(sequence.key)
                    sums.append(vector)
                    counts.append(1)
        if not keys:
            raise WorkbenchError("nothing to encode: the input gave no sequences")
        return keys, torch.stack(sums) / torch.tensor(counts)[:, None]

    def _texts(self, samples: list[Sample], number: tuple[int, ...]) -> list[Sequence]:
        if self.loaded.tokenizer is None:
            raise WorkbenchError("this run has no tokenizer, so it cannot read text")
        if self.task.builder.reads_spans:
            return self.task.sequences(samples, number)
        return self.task.with_builder(Document.like(self.task.builder)).sequences(samples, number)

    def _vectors(self, forward: Forward) -> Tensor:
        """[sequences, size]."""
        states, batch = forward.states, forward.batch
        if self.stream not in states:
            raise WorkbenchError(f"the input has no {self.stream!r} stream; encode a corpus that has it")
        if self.pool == "pooled":
            return self.network.pool(states, batch, self.stream)
        if self.pool == "summary":
            return self.network.summary_rows(states, batch, self.stream)
        if self.pool == "mean":
            lengths = batch.streams[self.stream].lengths
            return torch.stack([rows.mean(0) for rows in states[self.stream].split(lengths)])
        head: Any = self.loaded.model.heads[self.pool]
        return head.vectors(forward.read, self.stream)


def encode_texts(loaded: Loaded, texts: list[str], *, pool: str = "mean", batch_size: int = 64) -> Tensor:
    """Vectors of texts [texts, size] from a run that `workbench.load` gave.

    Raises:
        WorkbenchError: as `Encoder`.
    """
    return Encoder(loaded, "text", pool)(text_samples(list(enumerate(texts, 1)), batch_size), built=False)[1]


def encode(
    run: Annotated[Path, typer.Argument(help="The run, or a release: a folder, package:NAME.")],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A text file (a line each) or a corpus.")],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.")],
    stream: Annotated[Word, typer.Option(help="Whose vectors: text or image.")] = "text",
    pool: Annotated[
        Word, typer.Option(help="mean, summary ([CLS]), pooled, or an objective with vectors (itc).")
    ] = "mean",
    network: WhichNetwork = None,
    batch_size: Annotated[Count, typer.Option(help="Samples at once.")] = 64,
    limit: Annotated[Count | None, typer.Option(help="Only the first samples.")] = None,
    trust: Trust = False,
) -> None:
    """Vectors of texts or images from a trained run: `vectors` [samples, size], the keys (of a text file the
    numbers of its lines) in the file's metadata.

    Of an image-text corpus the vectors are of its images, or with --stream text of the first caption of each.

    Examples:

      workbench encode runs/bert sentences.txt --output vectors.safetensors

      workbench encode runs/clip corpora/flickr-dev --stream image --pool itc --output images.safetensors
    """
    loaded = load(run, trust=trust)
    loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    encoder = Encoder(loaded, stream, pool, network)
    samples, built = _samples(source, batch_size, limit)
    keys, vectors = encoder(samples, built=built)
    made = {"keys": json.dumps(keys, ensure_ascii=False), "checkpoint": checkpoint_of(run), "input": str(source)}
    with atomic(output) as file:
        file.write(save({"vectors": vectors.contiguous()}, {**made, "stream": stream, "pool": pool}))
    Terminal().print(f"{escape(str(output))}: {len(keys):,} vectors of size {vectors.shape[1]}", highlight=False)


def _samples(source: Path, size: int, limit: int | None) -> tuple[Iterator[list[Sample]], bool]:
    """Groups of samples, and whether the task's own builder makes their sequences.

    Raises:
        WorkbenchError: neither a corpus of texts or images nor a text file in UTF-8.
    """
    if (source / FILE_NAME).is_file():
        corpus = Corpus.open(source)
        if corpus.kind == "triples":
            raise WorkbenchError(f"{source} is a corpus of triples; encode one of texts or of images")
        groups = sample_pass([corpus], size=size, unit=None, limit=limit)
        return (_with_one_caption(g) for g in groups) if corpus.kind == "image-text" else groups, corpus.kind != "text"
    return text_samples(text_lines(source)[:limit], size), False


def _with_one_caption(samples: list[Sample]) -> list[Sample]:
    kept = ("captions", "caption_spans")
    return [{**s, **{name: s[name][:1] for name in kept if name in s}} for s in samples]

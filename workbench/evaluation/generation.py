"""Texts that a trained run goes on with: `workbench generate`, and `generate_texts` in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape

from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME
from workbench.errors import WorkbenchError, unknown
from workbench.evaluation.inputs import text_lines, text_samples
from workbench.evaluation.opening import checkpoint_of
from workbench.evaluation.passes import sample_pass
from workbench.files.drafts import atomic
from workbench.generation.beams import beam_search
from workbench.generation.check import check_past
from workbench.generation.decoder import Decoder
from workbench.generation.decoding import Decoding, Generated
from workbench.generation.draws import draw
from workbench.interop.opening import load
from workbench.keyed import Draws
from workbench.models.network import Network
from workbench.options.bounds import Count, Word
from workbench.options.command import Trust, WhichNetwork
from workbench.options.outputs import OutputFile
from workbench.parts.calls import call
from workbench.runs.loading import Loaded
from workbench.runs.outputs import check_apart
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence
from workbench.tasks.continuation import Continuation
from workbench.tasks.returns import CONTINUATION
from workbench.tasks.task import Task, TaskObjective
from workbench.terminal import Terminal
from workbench.text.tokenizer import Tokenizer

PREDICTS = "clm with a builder of `visibility: causal`, or mlm with one that has `prefix`"


@dataclass
class Generator:
    """Goes on with what samples hold, as one of the run's objectives has taught.

    Args:
        loaded: the run.
        decoding: how tokens are chosen.
        network_name: the network; without a name the only one that can.
        stream: the stream that grows, where the run has several that do.

    Raises:
        WorkbenchError: no objective of the run predicts tokens one after another, or several do and it isn't said
            which is meant.
    """

    loaded: Loaded
    decoding: Decoding = field(default_factory=Decoding)
    network_name: str | None = None
    stream: str | None = None

    def __post_init__(self) -> None:
        self.task, self.placed, self.continuation = self._find()
        self.network: Network = self.loaded.model.network(self.placed.network)
        self._checked = False

    @property
    def tokenizer(self) -> Tokenizer:
        assert self.loaded.tokenizer is not None
        return self.loaded.tokenizer

    @torch.inference_mode()
    def __call__(self, samples: list[Sample]) -> list[Generated]:
        """What each sample is continued with.

        Raises:
            WorkbenchError: a sample gives no sequence or several, or one too long to go on with; at the first call: a
                layer of the network has no past (`check_past`).
        """
        prompts = [self._prompt(sample) for sample in samples]
        if not prompts:
            return []
        device = next(self.network.parameters()).device
        head: Any = self.loaded.model.heads[self.placed.name]
        if not self._checked:
            longest = max(prompts, key=lambda prompt: prompt.length(self.continuation.stream))
            check_past(self.network, head, self.continuation, collate([longest]).to(device))
            self._checked = True
        decoder = Decoder(self.network, head, self.continuation, collate(prompts).to(device))
        if self.decoding.beams > 1:
            return beam_search(decoder, self.decoding, len(prompts))
        draws = Draws(self.decoding.seed, "generate", number=())
        return draw(decoder, self.decoding, [draws.of(prompt.draw) for prompt in prompts])

    def _find(self) -> tuple[Task, TaskObjective, Continuation]:
        if self.loaded.tokenizer is None:
            raise WorkbenchError("this run has no tokenizer, so it cannot write text")
        if self.network_name is not None:
            self.loaded.model.network_name(self.network_name)
        tasks = [task.evaluating() for task in self.loaded.transforms.values()]
        each = [
            (task, placed, call(placed.objective, "continuation", CONTINUATION, task.builder))
            for task in tasks
            for placed in task.objectives
        ]
        able = [(task, placed, found) for task, placed, found in each if found is not None]
        mine = [found for found in able if self.network_name in (None, found[1].network)]
        if not mine:
            names = sorted({placed.name for _, placed, _ in each})
            of = f"network {self.network_name!r}" if self.network_name else "run"
            raise WorkbenchError(
                f"this {of} cannot go on with a text: none of its objectives ({', '.join(names)}) predicts tokens one "
                f"after another; pretrain it with one that does ({PREDICTS}), or take its vectors (workbench encode)"
            )
        streams = {found.stream for _, _, found in mine}
        if self.stream is not None and self.stream not in streams:
            raise unknown("stream", self.stream, streams, "the streams that grow")
        mine = [found for found in mine if self.stream in (None, found[2].stream)]
        for option, found in (
            ("--network", {placed.network for _, placed, _ in mine}),
            ("--stream", {continuation.stream for _, _, continuation in mine}),
        ):
            if len(found) > 1:
                raise WorkbenchError(f"several can go on with a text: {', '.join(sorted(found))}; say {option}")
        return mine[0]

    def _prompt(self, sample: Sample) -> Sequence:
        sequences = self.task.sequences([self.continuation.arrange(sample)])
        if not sequences:
            raise WorkbenchError(f"prompt {sample['key']!r} is empty; write something")
        if len(sequences) > 1:
            raise WorkbenchError(
                f"prompt {sample['key']!r} is longer than the max_length of the run's builder, "
                f"{self.task.builder.max_length} tokens; shorten it"
            )
        self.continuation.prompt(sequences[0])
        self._check_room(sequences[0])
        return sequences[0]

    def _check_room(self, sequence: Sequence) -> None:
        stream, new = self.continuation.stream, self.decoding.max_new_tokens
        if not sequence.length(stream):
            raise WorkbenchError(f"prompt {sequence.key!r} is empty, and the builder adds no token before it")
        embedding = self.network.embeddings[stream]
        limits = {"position_ids": getattr(embedding, "max_positions", None), **getattr(embedding, "limits", {})}
        for name in self.continuation.counted:
            limit, first = limits.get(name), int(sequence.streams[stream].get(name, [0])[-1]) + 1
            if limit and first + new > limit:
                what = "positions" if name == "position_ids" else name
                advice = f"at most {limit - first} new tokens fit" if first < limit else "shorten the prompt"
                raise WorkbenchError(
                    f"prompt {sequence.key!r} has {first} {what} and --max-new-tokens is {new}, but the network has "
                    f"{limit} {what}: {advice}"
                )


def generate_texts(
    loaded: Loaded, prompts: list[str], decoding: Decoding | None = None, *, batch_size: int = 16, **where: Any
) -> list[str]:
    """What a run that `workbench.load` gave goes on with, for each prompt; the prompt itself isn't repeated.

    Args:
        where: `network_name` and `stream`, as `Generator`.

    Raises:
        WorkbenchError: as `Generator`.
    """
    generator = Generator(loaded, decoding or Decoding(), **where)
    groups = text_samples(list(enumerate(prompts)), batch_size)
    return [generator.tokenizer.decode(made.tokens) for group in groups for made in generator(group)]


def generate(
    run: Annotated[Path, typer.Argument(help="The run, or a release: a folder, package:NAME.")],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="Prompts: a text file (a line each) or a corpus.")],
    decoding: Decoding,
    output: Annotated[
        OutputFile | None, typer.Option("--output", "-o", help="File, .jsonl; default: the terminal.")
    ] = None,
    network: WhichNetwork = None,
    stream: Annotated[Word | None, typer.Option(help="The stream that grows, where several do.")] = None,
    batch_size: Annotated[Count, typer.Option(help="Prompts at once.")] = 16,
    limit: Annotated[Count | None, typer.Option(help="Only the first prompts.")] = None,
    trust: Trust = False,
) -> None:
    """Go on with texts, or say what a network makes of them (a translation, a caption, the masked words).

    Takes the most probable token each time; with --beams N the best text of a beam search, with --sample a drawn one.
    A line of JSON for each prompt: key, prompt, text, tokens, score (log-probability), ended, and what made it.
    Of an image-text corpus its images are the prompts.

    Examples:

      workbench generate runs/gpt prompts.txt --sample --top-p 0.9 --output texts.jsonl

      workbench generate runs/t5 lines.txt --beams 4 --max-new-tokens 32
    """
    if output is not None:
        check_apart(output)
    loaded = load(run, trust=trust)
    loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    generator = Generator(loaded, decoding, network, stream)
    made_by = {"checkpoint": checkpoint_of(run), "objective": generator.placed.name, **decoding.chosen()}
    lines = _lines(generator, _prompts(source, batch_size, limit), made_by)
    if output is None:
        console = Terminal(soft_wrap=True)
        for line in lines:
            console.print(line, markup=False, highlight=False)
        return
    count = 0
    with atomic(output) as file:
        for line in lines:
            file.write(f"{line}\n".encode())
            count += 1
    Terminal().print(f"{escape(str(output))}: {count:,} texts", highlight=False)


def _lines(generator: Generator, groups: Iterator[list[Sample]], made_by: dict[str, Any]) -> Iterator[str]:
    nothing = True
    for group in groups:
        for sample, made in zip(group, generator(group), strict=True):
            nothing = False
            told = {
                "key": sample["key"],
                "prompt": sample.get("text", ""),
                "text": generator.tokenizer.decode(made.tokens),
                "tokens": generator.tokenizer.tokens(made.tokens),
                "score": round(made.score, 6),
                "ended": made.ended,
                "made_by": made_by,
            }
            yield json.dumps(told, ensure_ascii=False)
    if nothing:
        raise WorkbenchError("nothing to go on with: the input has no prompts")


def _prompts(source: Path, size: int, limit: int | None) -> Iterator[list[Sample]]:
    """Groups of samples.

    Raises:
        WorkbenchError: neither a corpus of texts or images nor a text file in UTF-8.
    """
    if not (source / FILE_NAME).is_file():
        return text_samples(text_lines(source)[:limit], size)
    corpus = Corpus.open(source)
    if corpus.kind == "triples":
        raise WorkbenchError(f"{source} is a corpus of triples; generate from one of texts or of images")
    groups = sample_pass([corpus], size=size, unit=None, limit=limit)
    return (_without_captions(group) for group in groups) if corpus.kind == "image-text" else groups


def _without_captions(samples: list[Sample]) -> list[Sample]:
    return [{**{n: v for n, v in s.items() if n != "caption_spans"}, "captions": [""]} for s in samples]

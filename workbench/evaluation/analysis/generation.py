"""Texts that a trained run generates: `workbench generate` and `Model.generate`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.corpora.schema.places import with_texts
from workbench.evaluation.scoring.evaluated_run import checkpoint_of
from workbench.evaluation.scoring.image_sequences import media_of
from workbench.evaluation.scoring.inputs import input_corpus, text_lines, text_samples
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.writers import find_writer
from workbench.generation.beams import beam_search
from workbench.generation.decoder import Decoder, check_cache
from workbench.generation.decoding import Decoding, GeneratedText, Spelling, draw
from workbench.interop.run_or_checkpoint import load
from workbench.models.network import Network
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

logger = logging.getLogger(__name__)


@dataclass
class Generator:
    """Generates text from prompts with one of the run's objectives.

    Args:
        loaded: the run.
        decoding: how tokens are chosen.
        network_name: the network; without a name the only one that can generate.
        stream: the stream that is generated, if the run can generate several.
        objective: the name of the objective that predicts the tokens, if several can.

    Raises:
        WorkbenchError: no objective of the run predicts the next token, or several do and none is named.
    """

    loaded: LoadedRun
    decoding: Decoding = field(default_factory=Decoding)
    network_name: str | None = None
    stream: str | None = None
    objective: str | None = None

    def __post_init__(self) -> None:
        if self.loaded.tokenizer is None:
            raise WorkbenchError("this run has no tokenizer, so it cannot write text")
        if self.network_name is not None:
            self.loaded.model.network_name(self.network_name)
        tasks = [task.evaluating() for task in self.loaded.tasks.values()]
        self.task, self.placed, self.continuation = find_writer(
            tasks, self.network_name, self.stream, objective=self.objective
        )
        self.tokenizer = self.loaded.tokenizer
        self.spelling = Spelling(self.tokenizer, self.placed.objective.own_tokens)
        self.network: Network = self.loaded.model.network(self.placed.network)
        self._checked = False

    def __call__(self, samples: list[Sample]) -> list[GeneratedText]:
        """The generated text of each sample.

        Raises:
            WorkbenchError: a sample that nothing can be built from (`prompts`), or as `write`.
        """
        prompts = self.prompts(samples)
        for prompt in prompts:
            if isinstance(prompt, WorkbenchError):
                raise prompt
        return self.write([prompt for prompt in prompts if isinstance(prompt, Sequence)])

    def prompts(self, samples: list[Sample]) -> list[Sequence | WorkbenchError]:
        """The sequence of each prompt, or the error: no sequence, several sequences, or one without room for tokens."""
        found: list[Sequence | WorkbenchError] = []
        for sample in samples:
            try:
                found.append(self._prompt(sample))
            except WorkbenchError as error:
                found.append(error)
        return found

    @torch.inference_mode()
    def write(self, prompts: list[Sequence]) -> list[GeneratedText]:
        """The generated text of each of the `prompts`.

        Raises:
            WorkbenchError: at the first call: a layer of the network has no cache (`check_cache`).
        """
        if not prompts:
            return []
        device = next(self.network.parameters()).device
        head: Any = self.loaded.model.heads[self.placed.name]
        if not self._checked:
            longest = max(prompts, key=lambda prompt: prompt.length(self.continuation.stream))
            check_cache(self.network, head, self.continuation, collate([longest]).to(device))
            self._checked = True
        decoder = Decoder(self.network, head, self.continuation, collate(prompts).to(device))
        if self.decoding.beams > 1:
            return beam_search(decoder, self.decoding, len(prompts))
        draws = Draws(self.decoding.seed, "generate", number=())
        return draw(decoder, self.decoding, [draws.of(prompt.draw) for prompt in prompts])

    def _prompt(self, sample: Sample) -> Sequence:
        sequences = self.task.sequences([self.continuation.arrange(sample)])
        if not sequences:
            raise WorkbenchError(f"{prompt_name(sample)} is empty; write something")
        if len(sequences) > 1:
            tokens = sum(int((~part.streams["text"]["special"]).sum()) for part in sequences)
            raise WorkbenchError(
                f"{prompt_name(sample)} has {tokens} tokens, more than fit into the max_length of the run's builder, "
                f"{self.task.builder.max_length}; shorten it"
            )
        self.continuation.prompt(sequences[0])
        self._check_room(sequences[0], prompt_name(sample))
        return sequences[0]

    def _check_room(self, sequence: Sequence, called: str) -> None:
        stream, new = self.continuation.stream, self.decoding.max_new_tokens
        if not sequence.length(stream):
            raise WorkbenchError(f"{called} is empty, and the builder adds no token before it")
        embedding = self.network.embeddings[stream]
        limits = {"position_ids": getattr(embedding, "max_positions", None), **getattr(embedding, "limits", {})}
        for name in self.continuation.counted:
            limit, first = limits.get(name), int(sequence.streams[stream].get(name, [0])[-1]) + 1
            if limit and first + new > limit:
                what = "positions" if name == "position_ids" else name
                advice = f"at most {limit - first} new tokens fit" if first < limit else "shorten the prompt"
                raise WorkbenchError(
                    f"{called} has {first} {what} and --max-new-tokens is {new}, but the network has {limit} {what}: "
                    f"{advice}"
                )


def prompt_name(sample: Sample) -> str:
    """The name of a sample in messages: a line of a file, counted from 1, or a record of a corpus."""
    key = sample["key"]
    return f"prompt {key!r}" if "corpus" in sample else f"line {key}"


def generate_lines(
    run: Path,
    source: Path,
    decoding: Decoding,
    *,
    network: str | None = None,
    stream: str | None = None,
    objective: str | None = None,
    batch_size: int = 16,
    limit: int | None = None,
    trust: bool = False,
) -> Iterator[str]:
    """The command `workbench generate` (`workbench.cli.generation`): a line of JSON for each prompt.

    Raises:
        WorkbenchError: a wrong input, or as `Generator`.
    """
    loaded = load(run, trust=trust)
    loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    generator = Generator(loaded, decoding, network, stream, objective)
    made_by = {"checkpoint": checkpoint_of(run), "objective": generator.placed.name, **decoding.chosen()}
    return _lines(generator, _prompts(generator, source, batch_size, limit), made_by)


def _lines(generator: Generator, groups: Iterator[list[Sample]], made_by: dict[str, Any]) -> Iterator[str]:
    """A line of JSON for each sample: its text, or the error if the sample has no sequence.

    Raises:
        WorkbenchError: nothing can be built from any of them, or there is none.
    """
    wrong: list[WorkbenchError] = []
    count = 0
    for group in groups:
        prompts = generator.prompts(group)
        texts = iter(generator.write([prompt for prompt in prompts if isinstance(prompt, Sequence)]))
        for sample, prompt in zip(group, prompts, strict=True):
            count += 1
            record: dict[str, Any] = {"key": sample["key"], "prompt": sample.get("text", "")}
            if isinstance(prompt, WorkbenchError):
                wrong.append(prompt)
                record["error"] = str(prompt)
            else:
                record |= _in_words(generator, next(texts))
            yield json.dumps({**record, "made_by": made_by}, ensure_ascii=False)
    if not count:
        raise WorkbenchError("nothing to generate from: the input has no prompts")
    if len(wrong) == count:
        raise wrong[0]
    if wrong:
        logger.warning("%d of %d prompts have no text, the first: %s", len(wrong), count, wrong[0])


def _in_words(generator: Generator, made: GeneratedText) -> dict[str, Any]:
    return {
        "text": generator.spelling.text(made.tokens),
        "tokens": generator.spelling.tokens(made.tokens),
        "score": round(made.score, 6),
        "ended": made.ended,
    }


def _prompts(generator: Generator, source: Path, size: int, limit: int | None) -> Iterator[list[Sample]]:
    """Groups of samples.

    Raises:
        WorkbenchError: neither a corpus of texts or images nor a text file in UTF-8.
    """
    corpus = input_corpus(source)
    if corpus is None:
        return text_samples(text_lines(source)[:limit], size)
    groups = sample_pass([corpus], size=size, unit=None, limit=limit)
    if corpus.kind not in ("image-text", "video-text"):
        return groups
    return (without_captions(media_of(generator.task, group)) for group in groups)


def without_captions(samples: list[Sample]) -> list[Sample]:
    """The images (or videos) of samples, each with an empty caption as the prompt."""
    return [with_texts(sample, "captions", [""]) for sample in samples]
